"""variant: launches one after the other, from a pointer into the order"""


def prefetch(order, limit):
    flight, ahead = [], 0
    for place, unit in enumerate(order):
        soon = []
        for other in order[place:]:
            if other not in soon and len(soon) < limit:
                soon.append(other)
        for other in [u for u in flight if u not in soon]:
            flight.remove(other)
            other.free()
        ahead = max(ahead, place)
        while ahead < len(order) and (order[ahead] in flight or len(flight) < limit):
            if order[ahead] not in flight:
                flight.append(order[ahead])
                order[ahead].launch()
            ahead += 1
        unit.wait()
        yield unit
    while flight:
        flight.pop().free()
