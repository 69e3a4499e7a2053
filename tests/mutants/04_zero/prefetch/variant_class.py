"""variant: an iterator class; waits again for what is there"""


class prefetch:
    def __init__(self, order, limit):
        self.order, self.limit, self.place, self.flight = list(order), limit, 0, set()

    def __iter__(self):
        return self

    def __next__(self):
        wanted = list(dict.fromkeys(self.order[self.place :]))[: self.limit]
        for old in self.flight - set(wanted):
            old.free()
        for new in wanted:
            if new not in self.flight:
                new.launch()
        self.flight = set(wanted)
        if not wanted:
            raise StopIteration
        self.place += 1
        wanted[0].wait()
        wanted[0].wait()
        return wanted[0]
