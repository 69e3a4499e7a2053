"""variant: whatever is possible on a rank: a forward within the limit, then I, then W if p are held"""


def zero_bubble(rank: int, p: int, m: int) -> list[str]:
    plan: list[str] = []
    forwards = inputs = weights = 0
    while weights < m:
        if forwards < m and forwards - inputs < p - rank:
            plan.append(f"{rank}F{forwards}")
            forwards += 1
        elif inputs < m:
            plan.append(f"{rank}I{inputs}")
            inputs += 1
            if inputs - weights > rank:
                plan.append(f"{rank}W{weights}")
                weights += 1
        else:
            plan.append(f"{rank}W{weights}")
            weights += 1
    return plan
