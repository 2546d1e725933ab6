// What instructions do, and how long they take, except memory and control flow.
#pragma once

#include "multiprocessor.h"

namespace {

inline double Multiprocessor::execute(Warp& w, Group& g, const Instruction& i, u32 mask, int q, double next)
{
    next_after = 0;
    switch (i.op) {
    case OP_NOP:
        g.pc++;
        return now;
    case OP_FLOAT:
        g.pc++;
        return now + (i.pipe == PIPE_XU ? p(P_LATENCY_XU) : p(P_LATENCY_VARIABLE));
    case OP_MMA:
        g.pc++;
        return multiply(q, i);
    case OP_S2R:
        special(w, i, mask);
        g.pc++;
        return now + p(P_LATENCY_SPECIAL);
    case OP_LDC:
        calculate(w, i, mask);
        g.pc++;
        return now + p(P_LATENCY_CONSTANT);
    case OP_R2UR:
    case OP_VOTE:
    case OP_ELECT:
        gather(w, constants, i, mask);
        g.pc++;
        return now + p(P_LATENCY_VARIABLE);
    case OP_SET_REGISTERS:
    case OP_B2R: {
        const u32 bits = i.op == OP_SET_REGISTERS ? ALL_LANES : 0;
        for (int k = 0; k < i.count; k++)
            if (is_predicate(i.operands[k]))
                Writer<LANES>{w, ALL_LANES}.write_predicate(i.operands[k], bits);
        g.pc++;
        return now + p(P_LATENCY_VARIABLE);
    }
    case OP_BRA:
    case OP_BRA_DIVERGENT:
    case OP_CALL:
    case OP_RET:
    case OP_EXIT:
    case OP_BSSY:
    case OP_BSYNC:
    case OP_BREAK:
    case OP_BAR:
    case OP_WARPSYNC:
        control(w, g, i, mask, next);
        return now;
    case OP_LDG:
    case OP_STG:
    case OP_RED:
    case OP_ATOM:
    case OP_LDS:
    case OP_STS:
    case OP_LDL:
    case OP_STL:
    case OP_LDGSTS:
    case OP_SHFL: {
        const double done = access(w, i, mask, q);
        g.pc++;
        return done;
    }
    case OP_SYNCS_EXCH:
    case OP_SYNCS_ARRIVE:
    case OP_SYNCS_WAIT:
        take_lsu(1, q);
        if (mask)
            use_mbarrier(w, i, mask);
        g.pc++;
        return lsu_free + p(P_LATENCY_MBARRIER);
    case OP_TMA_BOX:
    case OP_TMA_BULK:
        if (mask)
            copy(w, i);
        g.pc++;
        return now + p(P_LATENCY_VARIABLE);
    case OP_HGMMA:
        multiply_together(w, i, q);
        g.pc++;
        return now;
    case OP_PRODUCTS_ARRIVE:
        g.pc++;
        return now;
    case OP_PRODUCTS_WAIT:
        wait_for_group(w.product_groups, i);
        if (next_after > now)
            w.blocked_by = S_GMMA;
        g.pc++;
        return now;
    case OP_LDGDEPBAR:
        w.copy_groups.push_back(w.copies);
        g.pc++;
        return w.copies;
    case OP_DEPBAR: {
        wait_for_group(w.copy_groups, i);
        g.pc++;
        return now;
    }
    default:
        if (i.op == OP_LDSM)
            throw Unsupported("the model does not follow LDSM");
        calculate(w, i, mask);
        g.pc++;
        return now + (i.pipe == PIPE_XU ? p(P_LATENCY_XU) : p(P_LATENCY_VARIABLE));
    }
}

inline void Multiprocessor::calculate(Warp& w, const Instruction& i, u32 mask)
{
    if (!mask)
        return;
    if (i.pipe == PIPE_UNIFORM)
        compute<1>(w, constants, i, 1);
    else
        compute<LANES>(w, constants, i, mask);
}

inline void Multiprocessor::special(Warp& w, const Instruction& i, u32 mask)
{
    const int x = int(setup.block[0]), y = int(setup.block[1]);
    Lanes values;
    for (int l = 0; l < LANES; l++) {
        const int thread = w.number * LANES + l;
        switch (i.operands[1].value) {
        case SR_TID_X: values.v[l] = thread % x; break;
        case SR_TID_Y: values.v[l] = thread / x % y; break;
        case SR_TID_Z: values.v[l] = thread / x / y; break;
        case SR_CTAID_X: values.v[l] = u32(w.block->index[0]); break;
        case SR_CTAID_Y: values.v[l] = u32(w.block->index[1]); break;
        case SR_CTAID_Z: values.v[l] = u32(w.block->index[2]); break;
        case SR_LANEID: values.v[l] = l; break;
        default: values.v[l] = 0;
        }
    }
    if (i.operands[0].kind == UNIFORM)
        Writer<1>{w, 1}.write(i.operands[0], values.v);
    else
        Writer<LANES>{w, mask}.write(i.operands[0], values.v);
}

inline double Multiprocessor::multiply(int q, const Instruction& i)
{
    const bool shallow = i.has(MODIFIER_1688) && !i.has(MODIFIER_TF32);  // m16n8k8 of fp16
    const double cycles = i.has(MODIFIER_TF32) ? p(P_HMMA_TF32) : p(P_HMMA_F16) / (shallow ? 2 : 1);
    pipe_free[q][PIPE_TENSOR] = now + cycles;
    count[C_PIPE_FIRST + PIPE_TENSOR] += cycles;
    return now + p(P_LATENCY_HMMA);
}

inline void Multiprocessor::multiply_together(Warp& w, const Instruction& i, int q)
{
    const double cycles = double(i.bytes) / p(P_HGMMA_COLUMNS);
    tensor_free[q] = std::max(now, tensor_free[q]) + cycles;
    count[C_PIPE_FIRST + PIPE_TENSOR] += cycles;
    w.product = tensor_free[q] + p(P_LATENCY_HGMMA);
    for (int k = 0; k < i.count; k++)
        if (i.operands[k].kind == OTHER)  // gsb0: the last of its group
            w.product_groups.push_back(w.product);
}

inline void Multiprocessor::wait_for_group(const std::vector<double>& groups, const Instruction& i)
{
    i64 open = 0;
    for (int k = 0; k < i.count; k++)
        if (i.operands[k].kind == IMMEDIATE)
            open = i.operands[k].value;
    const i64 at = i64(groups.size()) - 1 - open;
    if (at >= 0)
        next_after = groups[size_t(at)];
}

inline void Multiprocessor::shuffle(Warp& w, const Instruction& i, u32 mask)
{
    const Reader<LANES> in{w, constants};
    Lanes t0, t1, values;
    const int s = is_predicate(i.operands[0]) ? 1 : 0;
    const u32 *from = in.read(i.operands[s + 1], t0), *lane = in.read(i.operands[s + 2], t1);
    for (int l = 0; l < LANES; l++) {
        int source = int(lane[l]) & 31;
        if (i.has(MODIFIER_BFLY))
            source = l ^ source;
        else if (i.has(MODIFIER_UP))
            source = l - source;
        else if (i.has(MODIFIER_DOWN))
            source = l + source;
        values.v[l] = from[source >= 0 && source < LANES ? source : l];
    }
    const Writer<LANES> out{w, mask};
    if (s)
        out.write_predicate(i.operands[0], ALL_LANES);
    out.write(i.operands[s], values.v);
}

}  // namespace
