// What instructions do to registers: integers, predicates and addresses.  Floating-point results are not computed,
// except those that integer division is built from.
#pragma once
#include "machine.h"

// Constant banks: 0 with block, grid, stack and arguments, 2 with literals; others are zeros.
struct ConstantBank {
    static constexpr int LITERALS = 2;  // the bank of constants that the compiler placed
    unsigned char bytes[4096] = {};
    const unsigned char* literals = nullptr;
    i64 literal_bytes = 0;

    void put(int at, const void* from, int size) { memcpy(bytes + at, from, size); }
    u32 word(i64 at, i64 bank) const
    {
        const unsigned char* from = bank == 0 ? bytes : literals;
        const i64 size = bank == 0 ? i64(sizeof bytes) : bank == LITERALS ? literal_bytes : 0;
        u32 value = 0;
        if (at >= 0 && at + 4 <= size)
            memcpy(&value, from + at, 4);
        return value;
    }
};

struct Lanes {
    alignas(64) u32 v[LANES];
};

struct BitOfLane {
    alignas(64) u32 v[LANES];
    constexpr BitOfLane() : v()
    {
        for (int l = 0; l < LANES; l++)
            v[l] = 1u << l;
    }
};
constexpr BitOfLane BIT;

// Reads operands of N lanes: 32 of a warp, or the 1 of a uniform instruction.
template <int N>
struct Reader {
    Warp& warp;
    const ConstantBank& constants;

    void fill(Lanes& to, u32 value) const
    {
        for (int l = 0; l < N; l++)
            to.v[l] = value;
    }

    // The values of an operand, `high` for the upper half of a pair.
    const u32* read(const Operand& o, Lanes& to, int high = 0) const
    {
        const u32* from = raw(o, to, high);
        if (o.kind == PREDICATE || o.kind == UNIFORM_PREDICATE || !(o.negative | o.inverted))
            return from;
        for (int l = 0; l < N; l++)
            to.v[l] = o.negative ? -from[l] : ~from[l];
        return to.v;
    }

    // The values of an operand that is a float, its sign's modifiers applied.
    const u32* read_float(const Operand& o, Lanes& to) const
    {
        const u32* from = raw(o, to, 0);
        if (!(o.absolute | o.negative))
            return from;
        for (int l = 0; l < N; l++)
            to.v[l] = (o.absolute ? from[l] & ~(1u << 31) : from[l]) ^ (o.negative ? 1u << 31 : 0);
        return to.v;
    }

    const u32* raw(const Operand& o, Lanes& to, int high) const
    {
        switch (o.kind) {
        case REGISTER:
            if (o.number == RZ)
                break;
            if (N == 1) {
                to.v[0] = warp.row(o.number + high)[__builtin_ctz(warp.lanes)];
                return to.v;
            }
            return warp.row(o.number + high);
        case UNIFORM:
            fill(to, o.number == URZ ? 0 : warp.uniform[o.number + high]);
            return to.v;
        case IMMEDIATE:
            fill(to, high ? u32(i64(i32(o.value)) >> 32) : u32(o.value));
            return to.v;
        case PREDICATE:
        case UNIFORM_PREDICATE: {
            const u32 bits = predicate(o);
            for (int l = 0; l < N; l++)
                to.v[l] = bits >> l & 1;
            return to.v;
        }
        case CONSTANT:
            for (int l = 0; l < N; l++) {
                i64 at = o.value + 4 * high;
                if (o.number != RZ)
                    at += warp.row(o.number)[l];
                if (o.uniform != URZ)
                    at += warp.uniform[o.uniform];
                to.v[l] = constants.word(at, o.bank);
            }
            return to.v;
        }
        fill(to, 0);
        return to.v;
    }

    u32 predicate(const Operand& o) const
    {
        u32 bits = ALL_LANES;
        if (o.kind == UNIFORM_PREDICATE)
            bits = o.number == PT || warp.uniform_predicates >> o.number & 1 ? ALL_LANES : 0;
        else if (o.number != PT)
            bits = warp.predicates[o.number];
        return o.inverted ? ~bits : bits;
    }
};

template <int N>
struct Writer {
    Warp& warp;
    u32 mask;

    void write(const Operand& o, const u32* values, int high = 0) const
    {
        if (o.kind == UNIFORM) {
            if (o.number != URZ)
                warp.uniform[o.number + high] = values[0];
        } else if (o.kind == REGISTER && o.number != RZ) {
            u32* row = warp.row(o.number + high);
            if (N == 1)
                row[0] = values[0];
            else if (mask == ALL_LANES)
                memcpy(row, values, sizeof(u32) * LANES);
            else
                for (int l = 0; l < LANES; l++)
                    row[l] = mask & BIT.v[l] ? values[l] : row[l];
        }
    }

    void write_predicate(const Operand& o, u32 bits) const
    {
        if (o.number == PT)
            return;
        if (o.kind == UNIFORM_PREDICATE)
            warp.uniform_predicates = (warp.uniform_predicates & ~(1u << o.number)) | (bits & 1) << o.number;
        else
            warp.predicates[o.number] = (warp.predicates[o.number] & ~mask) | (bits & mask);
    }
};

template <int N>
u32 bits_of(const u32* flags)
{
    u32 bits = 0;
    for (int l = 0; l < N; l++)
        bits |= flags[l] ? BIT.v[l] : 0;
    return bits;
}

inline bool is_predicate(const Operand& o)
{
    return o.kind == PREDICATE || o.kind == UNIFORM_PREDICATE;
}

inline bool compared(i64 compare, i64 a, i64 b)
{
    switch (compare) {
    case COMPARE_LT: return a < b;
    case COMPARE_LE: return a <= b;
    case COMPARE_EQ: return a == b;
    case COMPARE_NE: return a != b;
    case COMPARE_GT: return a > b;
    default: return a >= b;
    }
}

inline bool compared_floats(i64 compare, float a, float b)
{
    switch (compare) {
    case COMPARE_LT: return a < b;
    case COMPARE_LE: return a <= b;
    case COMPARE_EQ: return a == b;
    case COMPARE_NE: return a != b;
    case COMPARE_GT: return a > b;
    case COMPARE_NAN: return a != a || b != b;
    default: return a >= b;
    }
}

inline float as_float(u32 bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

inline u32 as_bits(float value)
{
    u32 bits;
    memcpy(&bits, &value, 4);
    return bits;
}

// A funnel shift of hi:lo.
inline u32 shifted(const Instruction& i, u32 lo, u32 shift, u32 hi)
{
    const bool wide = i.has(MODIFIER_U64 | MODIFIER_S64), is_signed = i.has(MODIFIER_S32 | MODIFIER_S64);
    u32 s = shift & 63;
    if (i.has(MODIFIER_W))
        s &= 31;
    else if (!wide && s > 32)
        s = 32;
    const u64 both = u64(hi) << 32 | lo;
    if (i.has(MODIFIER_L)) {
        if (!i.has(MODIFIER_HI) && !wide)
            return s >= 32 ? 0 : lo << s;
        return i.has(MODIFIER_HI) ? both << s >> 32 : both << s;
    }
    if (i.has(MODIFIER_HI) && !wide)  // the source is the upper word
        return is_signed ? i32(hi) >> std::min(s, 31u) : s > 31 ? 0 : hi >> s;
    const u64 result = is_signed ? u64(i64(both) >> s) : both >> s;
    return i.has(MODIFIER_HI) ? result >> 32 : result;
}

inline u32 permuted(u32 a, u32 selector, u32 b)
{
    const u64 bytes = u64(b) << 32 | a;
    u32 result = 0;
    for (int k = 0; k < 4; k++) {
        const u32 choice = selector >> 4 * k & 15;
        u32 byte = bytes >> 8 * (choice & 7) & 255;
        if (choice & 8)
            byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * k;
    }
    return result;
}

// Integer and predicate instructions, for N lanes of the mask.
template <int N>
void compute(Warp& warp, const ConstantBank& constants, const Instruction& i, u32 mask)
{
    const Operand* o = i.operands;
    const Reader<N> in{warp, constants};
    const Writer<N> out{warp, mask};
    Lanes t0, t1, t2, t3, result, upper;
    const bool HI = i.has(MODIFIER_HI), X = i.has(MODIFIER_X), U32 = i.has(MODIFIER_U32);
    u32* r = result.v;

    switch (i.op) {
    case OP_MOV:
        out.write(o[0], in.read(o[1], t0));
        if (i.has(MODIFIER_64)) {
            if (o[1].kind == IMMEDIATE)
                in.fill(upper, u32(o[1].value >> 32));
            out.write(o[0], o[1].kind == IMMEDIATE ? upper.v : in.read(o[1], t0, 1), 1);
        }
        return;
    case OP_IADD: {  // of 64 bits
        u64 sum[N] = {};
        for (int k = 1; k < 3; k++) {
            Operand plain = o[k];
            plain.negative = plain.inverted = 0;
            const u32 *low = in.read(plain, t0), *high = in.read(plain, t1, 1);
            for (int l = 0; l < N; l++) {
                const u64 value = u64(high[l]) << 32 | low[l];
                sum[l] += o[k].negative ? -value : value;
            }
        }
        for (int l = 0; l < N; l++) {
            r[l] = sum[l];
            upper.v[l] = sum[l] >> 32;
        }
        out.write(o[0], r);
        return out.write(o[0], upper.v, 1);
    }
    case OP_HALF_CONSTANT: {  // HFMA2 R, -RZ, RZ, high, low
        in.fill(result, u32(o[3].value << 16 | (o[4].value & 0xffff)));
        return out.write(o[0], r);
    }
    case OP_CS2R:
        in.fill(result, 0);
        out.write(o[0], r);
        if (i.bytes == 8)
            out.write(o[0], r, 1);
        return;
    case OP_IABS: {
        const u32* a = in.read(o[1], t0);
        for (int l = 0; l < N; l++)
            r[l] = i32(a[l]) < 0 ? -a[l] : a[l];
        return out.write(o[0], r);
    }
    case OP_IMAD: {
        const int s = is_predicate(o[1]) ? 2 : 1;
        const u32 *a = in.read(o[s], t0), *b = in.read(o[s + 1], t1), *c = in.read(o[s + 2], t2);
        if (!i.has(MODIFIER_WIDE) && !HI) {
            const u32* carry = X ? in.read(o[s + 3], t3) : nullptr;
            for (int l = 0; l < N; l++)
                r[l] = a[l] * b[l] + c[l];
            if (carry)
                for (int l = 0; l < N; l++)
                    r[l] += carry[l];
            return out.write(o[0], r);
        }
        Lanes high, carries;
        Operand plain = o[s + 2];  // of 64 bits, so its words are not negated one by one
        plain.negative = 0;
        c = in.read(plain, t2);
        const u32* c_high = in.read(plain, high, 1);
        const u32* carry = X ? in.read(o[s + 3], t3) : nullptr;
        for (int l = 0; l < N; l++) {
            const u64 product = U32 ? u64(a[l]) * b[l] : u64(i64(i32(a[l])) * i32(b[l]));
            const u64 added = u64(c_high[l]) << 32 | c[l];
            const u64 sum = product + (o[s + 2].negative ? -added : added) + (carry ? carry[l] : 0);
            r[l] = sum;
            upper.v[l] = sum >> 32;
            carries.v[l] = sum < product;
        }
        if (HI)
            return out.write(o[0], upper.v);
        out.write(o[0], r);
        out.write(o[0], upper.v, 1);
        if (s == 2)
            out.write_predicate(o[1], bits_of<N>(carries.v));
        return;
    }
    case OP_IADD3: {
        int s = 1;
        while (is_predicate(o[s]))
            s++;
        if (s == 1 && !X) {
            const u32 *a = in.read(o[1], t0), *b = in.read(o[2], t1), *c = in.read(o[3], t2);
            for (int l = 0; l < N; l++)
                r[l] = a[l] + b[l] + c[l];
            return out.write(o[0], r);
        }
        u64 sum[N] = {};
        for (int k = s; k < s + 3; k++) {
            Operand plain = o[k];
            plain.negative = 0;
            const bool complement = o[k].negative && o[k].kind != IMMEDIATE;
            const u32* v = in.read(complement ? plain : o[k], t0);
            for (int l = 0; l < N; l++)
                sum[l] += complement ? u64(u32(~v[l])) + 1 : v[l];
        }
        for (int k = s + 3; X && k < i.count; k++) {
            const u32* carry = in.read(o[k], t0);
            for (int l = 0; l < N; l++)
                sum[l] += carry[l];
        }
        for (int l = 0; l < N; l++)
            r[l] = sum[l];
        out.write(o[0], r);
        for (int k = 1; k < s; k++) {
            for (int l = 0; l < N; l++)
                upper.v[l] = sum[l] >> (31 + k) & 1;
            out.write_predicate(o[k], bits_of<N>(upper.v));
        }
        return;
    }
    case OP_VIADD: {
        const u32 *a = in.read(o[1], t0), *b = in.read(o[2], t1);
        for (int l = 0; l < N; l++)
            r[l] = a[l] + b[l];
        return out.write(o[0], r);
    }
    case OP_MINIMUM:
    case OP_ADD_MINIMUM: {
        const int s = i.op == OP_MINIMUM ? 2 : 3;
        const u32* a = in.read(o[1], t0);
        if (i.op == OP_ADD_MINIMUM) {
            const u32* more = in.read(o[2], t1);
            for (int l = 0; l < N; l++)
                upper.v[l] = a[l] + more[l];
            a = upper.v;
        }
        const u32 *b = in.read(o[s], t2), *least = in.read(o[s + 1], t3);
        for (int l = 0; l < N; l++) {
            const bool less = U32 ? a[l] < b[l] : i32(a[l]) < i32(b[l]);
            r[l] = less == bool(least[l]) ? a[l] : b[l];
        }
        return out.write(o[0], r);
    }
    case OP_MINIMUM3: {
        const u32 *a = in.read(o[1], t0), *b = in.read(o[2], t1), *c = in.read(o[3], t2), *least = in.read(o[4], t3);
        auto chosen = [&](u32 x, u32 y, bool minimum) { return (U32 ? x < y : i32(x) < i32(y)) == minimum ? x : y; };
        for (int l = 0; l < N; l++)
            r[l] = chosen(chosen(a[l], b[l], least[l]), c[l], least[l]);
        return out.write(o[0], r);
    }
    case OP_FLOAT_MINIMUM: {
        const u32 *a = in.read_float(o[1], t0), *b = in.read_float(o[2], t1), *least = in.read(o[3], t2);
        for (int l = 0; l < N; l++) {
            const float x = as_float(a[l]), y = as_float(b[l]);
            const bool none = x != x || y != y;  // of them is chosen by comparing
            r[l] = none ? (x != x) == (i.compare == COMPARE_NAN) ? a[l] : b[l] : (x < y) == bool(least[l]) ? a[l] : b[l];
        }
        return out.write(o[0], r);
    }
    case OP_LEA: {
        const int s = is_predicate(o[1]) ? 2 : 1;
        const u32 *a = in.read(o[s], t0), *b = in.read(o[s + 1], t1);
        const bool has_high = HI && !i.has(MODIFIER_SX32);
        const u32* c = has_high ? in.read(o[s + 2], t2) : nullptr;
        const int k = s + 2 + has_high;
        const u32 shift = k < i.count && o[k].kind == IMMEDIATE ? o[k].value & 31 : 0;
        const u32* carry = X ? in.read(o[i.count - 1], t3) : nullptr;
        for (int l = 0; l < N; l++) {
            u64 value = u64(u32(a[l] << shift));
            if (HI) {
                const u64 high = c ? c[l] : i32(a[l]) < 0 ? ~0u : 0u;
                value = (high << 32 | a[l]) << shift >> 32;
            }
            const u64 sum = value + b[l] + (carry ? carry[l] : 0);
            r[l] = sum;
            upper.v[l] = sum >> 32 & 1;
        }
        out.write(o[0], r);
        if (s == 2)
            out.write_predicate(o[1], bits_of<N>(upper.v));
        return;
    }
    case OP_SHF: {
        const u32 *lo = in.read(o[1], t0), *shift = in.read(o[2], t1), *hi = in.read(o[3], t2);
        for (int l = 0; l < N; l++)
            r[l] = shifted(i, lo[l], shift[l], hi[l]);
        return out.write(o[0], r);
    }
    case OP_LOP3: {
        const int s = is_predicate(o[0]) ? 1 : 0;
        const u32 *a = in.read(o[s + 1], t0), *b = in.read(o[s + 2], t1), *c = in.read(o[s + 3], t2);
        const u32 table = o[s + 4].value;
        if (table == 0xc0)
            for (int l = 0; l < N; l++)
                r[l] = a[l] & b[l];
        else if (table == 0xfc)
            for (int l = 0; l < N; l++)
                r[l] = a[l] | b[l];
        else {
            memset(r, 0, sizeof result.v);
            for (int k = 0; k < 8; k++)
                if (table >> k & 1)
                    for (int l = 0; l < N; l++)
                        r[l] |= (k & 4 ? a[l] : ~a[l]) & (k & 2 ? b[l] : ~b[l]) & (k & 1 ? c[l] : ~c[l]);
        }
        if (s)
            out.write_predicate(o[0], bits_of<N>(r));
        return out.write(o[s], r);
    }
    case OP_PLOP3: {
        const u32 a = in.predicate(o[2]), b = in.predicate(o[3]), c = in.predicate(o[4]);
        for (int k = 0; k < 2; k++) {
            u32 bits = 0;
            for (int term = 0; term < 8; term++)
                if (o[5 + k].value >> term & 1)
                    bits |= (term & 4 ? a : ~a) & (term & 2 ? b : ~b) & (term & 1 ? c : ~c);
            out.write_predicate(o[k], bits);
        }
        return;
    }
    case OP_PRMT: {
        const u32 *a = in.read(o[1], t0), *selector = in.read(o[2], t1), *b = in.read(o[3], t2);
        for (int l = 0; l < N; l++)
            r[l] = permuted(a[l], selector[l], b[l]);
        return out.write(o[0], r);
    }
    case OP_SEL:
    case OP_FLOAT_SELECT: {
        const bool floats = i.op == OP_FLOAT_SELECT;
        const u32* a = floats ? in.read_float(o[1], t0) : in.read(o[1], t0);
        const u32* b = floats ? in.read_float(o[2], t1) : in.read(o[2], t1);
        const u32* chosen = in.read(o[3], t2);
        for (int l = 0; l < N; l++)
            r[l] = chosen[l] ? a[l] : b[l];
        return out.write(o[0], r);
    }
    case OP_ISETP:
    case OP_FSETP: {
        const bool floats = i.op == OP_FSETP;
        const u32* a = floats ? in.read_float(o[2], t0) : in.read(o[2], t0);
        const u32* b = floats ? in.read_float(o[3], t1) : in.read(o[3], t1);
        for (int l = 0; l < N; l++)
            if (floats)
                r[l] = compared_floats(i.compare, as_float(a[l]), as_float(b[l]));
            else if (U32)
                r[l] = compared(i.compare, a[l], b[l]);
            else
                r[l] = compared(i.compare, i32(a[l]), i32(b[l]));
        u32 bits = bits_of<N>(r);
        if (i.has(MODIFIER_EX)) {  // these are the upper words; where they are equal, the lower ones decide
            const u32 lower = in.predicate(o[5]);
            for (int l = 0; l < N; l++)
                upper.v[l] = a[l] == b[l];
            const u32 equal = bits_of<N>(upper.v);
            bits = i.compare == COMPARE_NE ? bits | (equal & lower) : (bits & ~equal) | (equal & lower);
        }
        const u32 other = in.predicate(o[4]);
        auto joined = [&](u32 x) { return i.has(MODIFIER_OR) ? x | other : i.has(MODIFIER_XOR) ? x ^ other : x & other; };
        out.write_predicate(o[0], joined(bits));
        return out.write_predicate(o[1], joined(~bits));
    }
    case OP_P2R: {
        const u32 *base = in.read(o[2], t0), *wanted = in.read(o[3], t1);
        for (int l = 0; l < N; l++) {
            u32 value = 0;
            for (int k = 0; k < 7; k++)
                value |= (warp.predicates[k] >> l & 1) << k;
            r[l] = (value & wanted[l]) | (base[l] & ~wanted[l]);
        }
        return out.write(o[0], r);
    }
    case OP_R2P: {
        const u32 *value = in.read(o[1], t0), *wanted = in.read(o[2], t1);
        for (int k = 0; k < 7; k++)
            for (int l = 0; l < N; l++)
                if (mask >> l & 1 && wanted[l] >> k & 1)
                    warp.predicates[k] = (warp.predicates[k] & ~BIT.v[l]) | (value[l] >> k & 1) << l;
        return;
    }
    case OP_POPC: {
        const u32* a = in.read(o[1], t0);
        for (int l = 0; l < N; l++)
            r[l] = __builtin_popcount(a[l]);
        return out.write(o[0], r);
    }
    case OP_DOT: {  // two halves of a word with the lower two bytes of another
        const u32 *a = in.read(o[1], t0), *b = in.read(o[2], t1), *c = in.read(o[3], t2);
        for (int l = 0; l < N; l++)
            r[l] = c[l] + (a[l] & 0xffff) * (b[l] & 0xff) + (a[l] >> 16) * (b[l] >> 8 & 0xff);
        return out.write(o[0], r);
    }
    case OP_I2F: {
        const bool wide = i.has(MODIFIER_U64 | MODIFIER_S64);
        const u32 *a = in.read(o[1], t0), *high = wide ? in.read(o[1], t1, 1) : a;
        for (int l = 0; l < N; l++) {
            const u64 both = u64(high[l]) << 32 | a[l];
            // .RP rounds up
            const double exact = i.has(MODIFIER_U64) ? double(both)
                                 : wide              ? double(i64(both))
                                 : U32               ? double(a[l])
                                                     : double(i32(a[l]));
            float value = float(exact);
            if (i.has(MODIFIER_RP) && double(value) < exact)
                value = std::nextafterf(value, INFINITY);
            r[l] = as_bits(value);
        }
        return out.write(o[0], r);
    }
    case OP_RECIPROCAL: {
        const u32* a = in.read(o[1], t0);
        for (int l = 0; l < N; l++)
            r[l] = as_bits(1 / as_float(a[l]));
        return out.write(o[0], r);
    }
    case OP_F2I: {
        const u32* a = in.read(o[1], t0);
        for (int l = 0; l < N; l++) {
            const double value = std::trunc(double(as_float(a[l])));
            const double least = i.has(MODIFIER_U64 | MODIFIER_U32) ? 0 : -2147483648.0;
            const double most = i.has(MODIFIER_U64) ? 18446744073709549568.0 : U32 ? 4294967295.0 : 2147483647.0;
            const double clamped = value == value ? std::min(most, std::max(least, value)) : 0;
            const u64 bits = clamped < 0 ? u64(i64(clamped)) : u64(clamped);
            r[l] = bits;
            upper.v[l] = bits >> 32;
        }
        out.write(o[0], r);
        if (i.has(MODIFIER_U64))
            out.write(o[0], upper.v, 1);
        return;
    }
    case OP_LDC: {
        for (int high = 0; high < i.bytes / 4; high++)
            out.write(o[0], in.read(o[1], t0, high), high);
        return;
    }
    }
}

// R2UR, VOTE, VOTEU, ELECT: communication between a warp's lanes, into uniform registers or those of all lanes.
inline void gather(Warp& warp, const ConstantBank& constants, const Instruction& i, u32 mask)
{
    const Operand* o = i.operands;
    const Reader<LANES> in{warp, constants};
    const Writer<1> out{warp, 1};
    Lanes t0;
    const u32 first = mask & -mask;
    if (!mask)
        return;
    if (i.op == OP_R2UR) {
        const u32 value = in.read(o[1], t0)[__builtin_ctz(mask)];
        return out.write(o[0], &value);
    }
    if (i.op == OP_VOTE) {
        const int k = is_predicate(o[0]) ? 0 : 1;  // a register before the predicate gets one bit per lane
        const u32 bits = in.predicate(o[k + 1]) & mask;
        const bool holds = i.has(MODIFIER_ANY) ? bits != 0 : bits == mask;
        const Writer<LANES> all{warp, mask};
        if (k) {
            Lanes ballot;
            in.fill(ballot, bits);
            o[0].kind == UNIFORM ? out.write(o[0], ballot.v) : all.write(o[0], ballot.v);
        }
        if (o[k].kind == UNIFORM_PREDICATE)
            return out.write_predicate(o[k], holds);
        return all.write_predicate(o[k], holds ? ALL_LANES : 0);
    }
    Writer<LANES>{warp, mask}.write_predicate(o[0], first);  // ELECT: one lane
}
