"""The executed course as a folder of pages, to read without running anything."""

from course_lib.site.build import build
from course_lib.site.check import broken_links

__all__ = ["broken_links", "build"]
