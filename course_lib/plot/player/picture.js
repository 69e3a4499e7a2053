// The image becomes the SVG it holds, which sees the page's light or dark theme.
function live(root) {
  const image = root.querySelector("img");
  image.insertAdjacentHTML("afterend", decodeURIComponent(image.src.slice(image.src.indexOf(",") + 1)));
  image.nextSibling.style.cssText = image.style.cssText;
  image.remove();
}
