"""mutant: is missing, it must be launched before the unit is yielded"""


def prefetch(order, limit):
    for unit in order:
        unit.launch()
        unit.wait()
        yield unit
        unit.free()
