"""Wrong and right answers to `dispatch_combine`: see `course dev show dispatch_combine`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("counts_in_the_list_of_sizes", ["the choices or the sizes were changed"], '''
-    going = [int(part.sum()) for part in counts_E.split(sizes)]
+    going = sizes
+    for member, part in enumerate(counts_E.split(sizes)):
+        going[member] = int(part.sum())
'''),
    Wrong("leaves_without_anything", ["deadlock"], '''
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
+    if not len(rows_RD) and not len(weights_TK):
+        return rows_RD.new_zeros(0, rows_RD.shape[1])
+    as_it_came_RD = rows_RD[route.by_expert.argsort()]
'''),
    Wrong("averaged", ["times what it should be"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
@@
-    return (choices_TKD * weights_TK[..., None]).sum(1)
+    return (choices_TKD * weights_TK[..., None]).mean(1)
'''),
    Wrong("back_by_expert", ["y (", "has the wrong value"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("back_permuted_twice", ["y (", "has the wrong value"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("counts_gathered", ["counts are gathered"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from course_lib.comm import all_gather
+from typing import Any
@@
-    coming_NO = counts_E.new_empty(group.size, own)
-    all_to_all(coming_NO.view(-1), counts_E, group, [own] * group.size, sizes)
+    every_NE = counts_E.new_empty(group.size, sum(sizes))
+    all_gather(every_NE, counts_E[None], group)
+    coming_NO = every_NE.split(sizes, 1)[group.index]
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("equal_shares", ["all_to_all", "rows"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    all_to_all(coming_NO.view(-1), counts_E, group, [own] * group.size, sizes)
+    all_to_all(coming_NO.view(-1), counts_E, group, [own] * group.size)
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("first_choice_alone", ["only one choice of each token"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
@@
-    return (choices_TKD * weights_TK[..., None]).sum(1)
+    return (choices_TKD * weights_TK[..., None])[:, 0]
'''),
    Wrong("gathers_all_tokens", ["bytes sent with 3 ranks"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from course_lib.comm import all_gather, all_gather_to_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
+    every = torch.tensor([len(x_TD)])
+    heights = every.new_empty(group.size)
+    all_gather(heights, every, group)
+    room = int(heights.max())
+    padded = torch.nn.functional.pad(x_TD, (0, 0, 0, room - len(x_TD)))
+    all_gather_to_group(padded, 0, group)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("home_by_expert", ["not put back in the order of tokens"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD
'''),
    Wrong("idle_without_rows", ["one without rows", "the rows that come are not those that a rank expects"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
-    rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
+    order = flat.argsort(stable=True)
+    rows_RD = x_TD[:0]
+    if sum(coming):
+        rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    if len(rows_RD) == 0 and not sum(going):
+        return weights_TK.new_zeros(0, rows_RD.shape[1])
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("idle_without_tokens", ["waits", "all_to_all", "rank 1"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
         The rows [R, D] of this rank's experts, how many each has, and the route.
     """
+    if len(x_TD) == 0:
+        return x_TD, [0] * sizes[group.index], None
     # BEGIN SOLUTION
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    if route is None:
+        return weights_TK.new_zeros(0, rows_RD.shape[1])
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("in_float32", ["rows", "has the wrong dtype"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
-    rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
+    order = flat.argsort(stable=True)
+    rows_RD = exchange_in_group(x_TD[order // top_k].float(), coming, going, group)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("minlength_forgotten", ["all_to_all input of 4 parts"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    counts_E = torch.bincount(flat, minlength=sum(sizes))
+    counts_E = torch.bincount(flat, minlength=0)
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("no_counts", ["exchange the counts"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    all_to_all(coming_NO.view(-1), counts_E, group, [own] * group.size, sizes)
+    coming_NO.copy_(counts_E.split(sizes)[group.index].expand(group.size, own))
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("no_gradient_home", ["all_to_all has no backward"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = rows_RD.new_empty(sum(going), rows_RD.shape[1])
+    all_to_all(home_SD, as_it_came_RD.detach(), group, going, coming)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("no_gradient_through", ["all_to_all has no backward"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
-    rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
+    order = flat.argsort(stable=True)
+    rows_RD = x_TD.new_empty(sum(coming), x_TD.shape[1])
+    all_to_all(rows_RD, x_TD.detach()[order // top_k], group, coming, going)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("own_loads", ["this rank's own counts"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], counts_E.split(sizes)[group.index].tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("padded", ["bytes sent with 3 ranks"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from course_lib.comm import all_reduce
+from typing import Any
@@
+def padded(
+    rows: torch.Tensor, going: list[int], coming: list[int], room: int, group: Group
+) -> torch.Tensor:
+    parts = [torch.nn.functional.pad(part, (0, 0, 0, room - len(part)))
+             for part in rows.split(going)]
+    got = exchange_in_group(torch.cat(parts), [room] * group.size, [room] * group.size, group)
+    return torch.cat([part[:n] for part, n in zip(got.split(room), coming, strict=True)])
 def dispatch(
@@
-    order = flat.argsort()
-    rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
+    order = flat.argsort(stable=True)
+    most = torch.tensor(max(going))
+    all_reduce(most, group, "max")
+    room = int(most)
+    rows_RD = padded(x_TD[order // top_k], going, coming, room, group)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert, room)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert, room = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = padded(as_it_came_RD, coming, going, room, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("past_comm", ["was called past course_lib.comm"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+import torch.distributed as dist
+from typing import Any
@@
-    all_to_all(coming_NO.view(-1), counts_E, group, [own] * group.size, sizes)
+    dist.all_to_all_single(
+        coming_NO.view(-1), counts_E, [own] * group.size, sizes, group.handle)
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("permuted_twice", ["its inverse is its argsort"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order]
'''),
    Wrong("rank_not_index", ["list index out of range"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    flat, own, top_k = chosen_TK.flatten(), sizes[group.index], chosen_TK.shape[1]
+    flat, own, top_k = chosen_TK.flatten(), sizes[group.rank], chosen_TK.shape[1]
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("route_in_a_global", ["with another dispatch before combine"], '''
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    global last
+    last = Route(order, going, coming, by_expert)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), last
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
+    route = last
+    as_it_came_RD = rows_RD[route.by_expert.argsort()]
'''),
    Wrong("rows_by_sender", ["the rows arrive ordered by sender"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD, coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("sizes_not_swapped", ["exchange_in_group"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, coming, going, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("unweighted", ["the weights were not applied"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
@@
-    return (choices_TKD * weights_TK[..., None]).sum(1)
+    return choices_TKD.sum(1)
'''),
    Wrong("weighed_twice", ["the weights were applied twice"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
@@
-    return (choices_TKD * weights_TK[..., None]).sum(1)
+    return (choices_TKD * weights_TK[..., None] ** 2).sum(1)
'''),
    Wrong("weights_by_expert", ["weights were applied to the wrong tokens"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
@@
-    return (choices_TKD * weights_TK[..., None]).sum(1)
+    return (choices_TKD * weights_TK.flatten()[order.argsort()].view_as(weights_TK)[..., None]).sum(1)
'''),
    Wrong("weights_detached", ["the weights were detached"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
@@
-    return (choices_TKD * weights_TK[..., None]).sum(1)
+    return (choices_TKD * weights_TK.detach()[..., None]).sum(1)
'''),
    Wrong("weights_travel", ["weights are sent too"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
+    order = flat.argsort(stable=True)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    other = exchange_in_group(x_TD[order // top_k, :1], coming, going, group)
+    return (rows_RD + 0 * other)[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("wrong_token", ["the wrong tokens were sent"], '''
 from course_lib.comm import Group, all_to_all, exchange_in_group
+from typing import Any
@@
-    order = flat.argsort()
-    rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
+    order = flat.argsort(stable=True)
+    rows_RD = exchange_in_group(x_TD[order % max(1, len(x_TD))], coming, going, group)
@@
-    by_expert = expert_R.argsort()
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    by_expert = expert_R.argsort(stable=True)
+    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)
@@
-    as_it_came_RD = rows_RD[route.by_expert.argsort()]
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    order, going, coming, by_expert = route
+    as_it_came_RD = rows_RD[by_expert.argsort()]
+    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
+    choices_SD = home_SD[order.argsort()]
'''),
    Wrong("column_by_column", ["the number of all-to-alls"], '''
-    rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
+    columns = x_TD[order // top_k].split(1, 1)
+    rows_RD = torch.cat([exchange_in_group(c, coming, going, group) for c in columns], 1)
'''),
    Wrong("rows_in_float64", ["rows are sent in float64"], '''
-    rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
+    rows_RD = exchange_in_group(x_TD[order // top_k].double(), coming, going, group)
@@
-    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
+    rows_RD = rows_RD[by_expert].to(x_TD.dtype)
+    return rows_RD, coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
@@
-    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
+    home_SD = exchange_in_group(as_it_came_RD.double(), route.going, route.coming, group)
-    choices_SD = home_SD[route.order.argsort()]
+    choices_SD = home_SD[route.order.argsort()].to(rows_RD.dtype)
'''),
]

RIGHT = [
    Right("variant_nonzero", "rows looked up expert by expert, home by index_add", '''
from typing import Any

import torch

from course_lib.comm import Group, all_to_all, exchange_in_group


def dispatch(
    x_TD: torch.Tensor, chosen_TK: torch.Tensor, sizes: list[int], group: Group
) -> tuple[torch.Tensor, list[int], Any]:
    """Sends tokens to their experts."""
    flat, own, top_k = chosen_TK.flatten(), sizes[group.index], chosen_TK.shape[1]
    counts_E = torch.bincount(flat, minlength=sum(sizes))
    coming_NO = counts_E.new_empty(group.size, own)
    all_to_all(coming_NO.view(-1), counts_E, group, [own] * group.size, sizes)
    going = [int(part.sum()) for part in counts_E.split(sizes)]
    coming = coming_NO.sum(1).tolist()
    order = torch.cat([(flat == e).nonzero()[:, 0].flip(0) for e in range(sum(sizes))])
    rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
    expert_R = torch.arange(own).repeat(group.size).repeat_interleave(coming_NO.flatten())
    by_expert = expert_R.argsort(stable=True)
    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)


def combine(
    rows_RD: torch.Tensor, route: Any, weights_TK: torch.Tensor, group: Group
) -> torch.Tensor:
    """Brings the experts' outputs home, and adds them up there."""
    order, going, coming, by_expert = route
    as_it_came_RD = rows_RD[by_expert.argsort()]
    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
    tokens, top_k = weights_TK.shape
    weighed_SD = home_SD * weights_TK.flatten()[order, None]
    return home_SD.new_zeros(tokens, home_SD.shape[1]).index_add(0, order // top_k, weighed_SD)
'''),
    Right("variant_split_and_join", "parts cut and joined instead of permuted", '''
from typing import Any

import torch

from course_lib.comm import Group, all_to_all, exchange_in_group


def dispatch(
    x_TD: torch.Tensor, chosen_TK: torch.Tensor, sizes: list[int], group: Group
) -> tuple[torch.Tensor, list[int], Any]:
    """Sends tokens to their experts."""
    flat, own, top_k = chosen_TK.flatten(), sizes[group.index], chosen_TK.shape[1]
    counts_E = torch.bincount(flat, minlength=sum(sizes))
    coming_NO = counts_E.new_empty(group.size, own)
    all_to_all(coming_NO.view(-1), counts_E, group, [own] * group.size, sizes)
    going = [int(part.sum()) for part in counts_E.split(sizes)]
    coming = coming_NO.sum(1).tolist()
    order = flat.argsort(stable=True)
    rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
    parts = rows_RD.split(coming_NO.flatten().tolist())
    joined = torch.cat([part for e in range(own) for part in parts[e::own]])
    return joined, coming_NO.sum(0).tolist(), (order, going, coming_NO)


def combine(
    rows_RD: torch.Tensor, route: Any, weights_TK: torch.Tensor, group: Group
) -> torch.Tensor:
    """Brings the experts' outputs home, and adds them up there."""
    order, going, coming_NO = route
    parts = rows_RD.split(coming_NO.t().flatten().tolist())
    as_it_came_RD = torch.cat([part for n in range(group.size) for part in parts[n :: group.size]])
    coming = coming_NO.sum(1).tolist()
    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
    choices_SD = home_SD[order.argsort()]
    choices_TKD = choices_SD.view(*weights_TK.shape, choices_SD.shape[1])
    return (choices_TKD * weights_TK[..., None]).sum(1)
'''),
    Right("variant_weights_first_in_route", "an object for a route, index_copy for the inverses", '''
from typing import Any

import torch

from course_lib.comm import Group, all_to_all, exchange_in_group


def dispatch(
    x_TD: torch.Tensor, chosen_TK: torch.Tensor, sizes: list[int], group: Group
) -> tuple[torch.Tensor, list[int], Any]:
    """Sends tokens to their experts."""
    flat, own, top_k = chosen_TK.flatten(), sizes[group.index], chosen_TK.shape[1]
    counts_E = torch.bincount(flat, minlength=sum(sizes))
    coming_NO = counts_E.new_empty(group.size, own)
    all_to_all(coming_NO.view(-1), counts_E, group, [own] * group.size, sizes)
    going = [int(part.sum()) for part in counts_E.split(sizes)]
    coming = coming_NO.sum(1).tolist()
    order = flat.argsort(stable=True)
    rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
    expert_R = torch.arange(own).repeat(group.size).repeat_interleave(coming_NO.flatten())
    by_expert = expert_R.argsort(stable=True)
    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)


def combine(
    rows_RD: torch.Tensor, route: Any, weights_TK: torch.Tensor, group: Group
) -> torch.Tensor:
    """Brings the experts' outputs home, and adds them up there."""
    order, going, coming, by_expert = route
    as_it_came_RD = torch.empty_like(rows_RD).index_copy(0, by_expert, rows_RD)
    home_SD = exchange_in_group(as_it_came_RD, going, coming, group)
    choices_SD = torch.zeros_like(home_SD).index_copy(0, order, home_SD)
    choices_TKD = choices_SD.view(*weights_TK.shape, choices_SD.shape[1])
    return (weights_TK[:, None] @ choices_TKD).squeeze(1)
'''),
]
