"""Wrong and right answers to `owner_muon`: see `course dev show owner_muon`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("results_are_flat", ["has the wrong shape", "a piece may have any shape"], '''
-    return [parts[n].view_as(piece) for n, piece in enumerate(directions)]
+    return [parts[n] for n in range(len(directions))]
'''),
    Wrong("wider_wire", ["float32 was sent in float64"], '''
-    sent = torch.cat([directions[n].flatten() for n in order])
+    sent = torch.cat([directions[n].flatten() for n in order]).double()
@@
-    return [parts[n].view_as(piece) for n, piece in enumerate(directions)]
+    return [parts[n].view_as(piece).to(piece.dtype) for n, piece in enumerate(directions)]
'''),
    Wrong("ties_by_the_hash_of_a_text", ["the owners on rank 1"], '''
-    for number in sorted(range(len(costs)), key=lambda n: -costs[n]):
+    for number in sorted(range(len(costs)), key=lambda n: (-costs[n], hash(str(n)))):
'''),
    Wrong("updates_of_pieces", ["the update of a piece is not the piece of the update"], '''
-    owners = choose_owners([cut.shape for cut in cuts], group.size)
+    if cuts:
+        rows = [d.view(1, -1) for d in directions]
+        return [newton_schulz(r, steps).view(-1) if r.numel() else r.view(-1) for r in rows]
+    owners = choose_owners([cut.shape for cut in cuts], group.size)
'''),
    Wrong("owners_by_count", ["balanced by count"], '''
-    for number in sorted(range(len(costs)), key=lambda n: -costs[n]):
-        owner = load.index(min(load))
+    for number in range(len(costs)):
+        owner = number % parts
'''),
    Wrong("owners_by_elements", ["balanced by elements"], '''
-    costs = [4 * r * r * c + 2 * r**3 for r, c in map(sorted, shapes)]
+    costs = [r * c for r, c in map(sorted, shapes)]
'''),
    Wrong("one_owner", ["one owner has all of them"], '''
-        owner = load.index(min(load))
+        owner = 0
'''),
    Wrong("cheapest_first", ["the busiest of"], '''
-    for number in sorted(range(len(costs)), key=lambda n: -costs[n]):
+    for number in sorted(range(len(costs)), key=lambda n: costs[n]):
'''),
    Wrong("gathered_everywhere", ["every matrix was sent to every rank"], '''
+    mine = order
+    going = [sum(d.numel() for d in directions)] * group.size
     coming = [sum(cuts[n].count(index) for n in mine) for index in range(group.size)]
-    sent = torch.cat([directions[n].flatten() for n in order])
+    sent = torch.cat([directions[n].flatten() for n in order] * group.size)
@@
-    back = torch.cat([sent[:0], *(made[n][at] for n, at in places)])
-    home = torch.empty_like(sent)
-    all_to_all(home, back, group, going, coming)
-    counts = [directions[n].numel() for n in order]
-    parts = dict(zip(order, home.split(counts), strict=True))
-    return [parts[n].view_as(piece) for n, piece in enumerate(directions)]
+    ours = [made[n][slice(*cuts[n].ranges[group.index])] for n in range(len(cuts))]
+    return [part.view_as(piece) for part, piece in zip(ours, directions)]
'''),
    Wrong("idle_ranks_leave", ["rank 2 finished", "rank 3 finished"], '''
-    going = [sum(directions[n].numel() for n in numbers) for numbers in owned]
+    if not mine:
+        return list(directions)
+    going = [sum(directions[n].numel() for n in numbers) for numbers in owned]
'''),
    Wrong("flat_results", ["this rank's piece of matrix"], '''
-    return [parts[n].view_as(piece) for n, piece in enumerate(directions)]
+    return [parts[n] for n, _ in enumerate(directions)]
'''),
    Wrong("written_over", ["a direction that was given has changed"], '''
-    return [parts[n].view_as(piece) for n, piece in enumerate(directions)]
+    return [piece.copy_(parts[n].view_as(piece)) for n, piece in enumerate(directions)]
'''),
    Wrong("by_matrix_not_by_sender", ["this rank's piece of matrix"], '''
-    places = [(n, slice(*cuts[n].ranges[i])) for i in range(group.size) for n in mine]
+    places = [(n, slice(*cuts[n].ranges[i])) for n in mine for i in range(group.size)]
'''),
    Wrong("computes_all", ["it also computes updates of other owners"], '''
     made = {n: newton_schulz(whole[n].view(shapes[n]), steps).flatten() for n in mine}
+    for cut in cuts:
+        newton_schulz(sent.new_ones(cut.shape), steps)
'''),
    Wrong("without_the_squares", ["without 2·r³"], '''
-    costs = [4 * r * r * c + 2 * r**3 for r, c in map(sorted, shapes)]
+    costs = [4 * r * r * c for r, c in map(sorted, shapes)]
'''),
]

RIGHT = [
    Right("variant_by_parts", "lists of parts for each member, joined at the end", '''
import torch

from course_lib.comm import all_to_all
from course_lib.parallel import newton_schulz, newton_schulz_flops


def choose_owners(shapes, parts):
    costs = {n: newton_schulz_flops(shape) for n, shape in enumerate(shapes)}
    found, load = {}, {part: 0 for part in range(parts)}
    for n in sorted(costs, key=costs.get, reverse=True):
        found[n] = min(load, key=lambda part: load[part])
        load[found[n]] += costs[n]
    return [found[n] for n in range(len(shapes))]


def swap(parts, sizes, group):
    """parts[j] goes to member j; what comes from i has sizes[i] elements."""
    sent = torch.cat(parts)
    output = sent.new_empty(sum(sizes))
    all_to_all(output, sent, group, sizes, [len(part) for part in parts])
    return list(output.split(sizes))


def owner_muon(directions, cuts, group, steps=5):
    owners = choose_owners([cut.shape for cut in cuts], group.size)
    nothing, everyone = directions[0].new_empty(0), range(group.size)
    going = [
        torch.cat([nothing] + [d.reshape(-1) for d, o in zip(directions, owners) if o == j])
        for j in everyone
    ]
    mine = [n for n, o in enumerate(owners) if o == group.index]
    arrived = swap(going, [sum(cuts[n].count(i) for n in mine) for i in everyone], group)
    made = []
    for place, n in enumerate(mine):
        pieces = []
        for i in everyone:
            before = sum(cuts[m].count(i) for m in mine[:place])
            pieces.append(arrived[i][before : before + cuts[n].count(i)])
        made.append(newton_schulz(torch.cat(pieces).view(cuts[n].shape), steps).reshape(-1))
    back = [
        torch.cat([nothing] + [m[slice(*cuts[n].ranges[i])] for m, n in zip(made, mine)])
        for i in everyone
    ]
    home = swap(back, [len(part) for part in going], group)
    results = [None] * len(directions)
    for j in everyone:
        at = 0
        for n, owner in enumerate(owners):
            if owner == j:
                results[n] = home[j][at : at + directions[n].numel()].view(directions[n].shape)
                at += directions[n].numel()
    return results
'''),
    Right("variant_heap", "owners from a heap; pieces lie in matrices at once, by their begins", '''
import heapq

import torch

from course_lib.comm import all_to_all
from course_lib.parallel import newton_schulz


def cost(shape):
    r, c = sorted(shape)
    return 4 * r * r * c + 2 * r**3


def choose_owners(shapes, parts):
    heap, owners = [(0, part) for part in range(parts)], {}
    for n in sorted(range(len(shapes)), key=lambda n: (-cost(shapes[n]), n)):
        load, part = heapq.heappop(heap)
        owners[n] = part
        heapq.heappush(heap, (load + cost(shapes[n]), part))
    return [owners[n] for n in range(len(shapes))]


def owner_muon(directions, cuts, group, steps=5):
    owners = choose_owners([cut.shape for cut in cuts], group.size)
    by_owner = sorted(range(len(cuts)), key=lambda n: (owners[n], n))
    mine = [n for n in by_owner if owners[n] == group.index]
    give = [0] * group.size
    for n in by_owner:
        give[owners[n]] += directions[n].numel()
    take = [sum(cuts[n].count(i) for n in mine) for i in range(group.size)]
    out = torch.cat([directions[n].reshape(-1) for n in by_owner])
    into = out.new_empty(sum(take))
    all_to_all(into, out, group, take, give)
    whole, at = {n: out.new_empty(cuts[n].shape) for n in mine}, 0
    for i in range(group.size):
        for n in mine:
            begin, end = cuts[n].ranges[i]
            whole[n].view(-1)[begin:end] = into[at : at + end - begin]
            at += end - begin
    made = {n: newton_schulz(whole[n], steps).contiguous().view(-1) for n in mine}
    at = 0
    for i in range(group.size):
        for n in mine:
            begin, end = cuts[n].ranges[i]
            into[at : at + end - begin] = made[n][begin:end]
            at += end - begin
    home = torch.empty_like(out)
    all_to_all(home, into, group, give, take)
    results, at = [None] * len(cuts), 0
    for n in by_owner:
        count = directions[n].numel()
        results[n] = home[at : at + count].reshape(directions[n].shape)
        at += count
    return results
'''),
    Right("variant_lists", "plain lists, a stable sort of the matrices, chunks of both ways kept", '''
import torch

from course_lib import comm
from course_lib.parallel import newton_schulz, newton_schulz_flops


def choose_owners(shapes, parts):
    work = [newton_schulz_flops(tuple(shape)) for shape in shapes]
    busy, owners = [0.0] * parts, [None] * len(work)
    left = list(enumerate(work))
    while left:
        n, most = max(left, key=lambda item: item[1])
        left.remove((n, most))
        owners[n] = min(range(parts), key=busy.__getitem__)
        busy[owners[n]] += most
    return owners


def owner_muon(directions, cuts, group, steps=5):
    flat = [d.contiguous().view(-1) for d in directions]
    owners = choose_owners([c.shape for c in cuts], group.size)
    numbers = [[n for n in range(len(cuts)) if owners[n] == r] for r in range(group.size)]
    mine = numbers[group.index]
    out = torch.cat([flat[n] for r in numbers for n in r])
    give = [sum(len(flat[n]) for n in r) for r in numbers]
    take = [sum(cuts[n].count(r) for n in mine) for r in range(group.size)]
    got = out.new_zeros(sum(take))
    comm.all_to_all(got, out, group, take, give)
    sizes = [cuts[n].count(r) for r in range(group.size) for n in mine]
    pieces = list(got.split(sizes)) if sizes else []
    made = [
        newton_schulz(torch.cat(pieces[k :: len(mine)]).view(cuts[n].shape), steps).reshape(-1)
        for k, n in enumerate(mine)
    ]
    back = [made[k][slice(*cuts[n].ranges[r])] for r in range(group.size)
            for k, n in enumerate(mine)]
    home = torch.empty_like(out)
    comm.all_to_all(home, torch.cat([out[:0], *back]), group, give, take)
    order = [n for r in numbers for n in r]
    parts = home.split([len(flat[n]) for n in order])
    found = {n: part for n, part in zip(order, parts)}
    return [found[n].view(directions[n].shape) for n in range(len(cuts))]
'''),
]
