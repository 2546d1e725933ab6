// The simulator's data: a kernel's code, warps, blocks, parameters of the GPU, counters.
//
// The enumerations Op, Pipe, Parameter, Counter and Stall, and the bits MODIFIER_..., come from the Python side
// (alexconv/predict/opcodes.py and native.py), which prepends them to this file.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <queue>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

constexpr int LANES = 32, SCHEDULERS = 4, SCOREBOARDS = 6, BARRIERS = 16;
constexpr int RZ = 255, URZ = 63, PT = 7;
constexpr u32 ALL_LANES = ~0u;
constexpr u32 SHARED_ADDRESS = 0xffffff;  // without the block's number in its cluster
constexpr double NEVER = 1e300;

enum Kind : int { NONE, REGISTER, UNIFORM, PREDICATE, UNIFORM_PREDICATE, IMMEDIATE, CONSTANT, MEMORY, SPECIAL, LABEL, CONVERGENCE, DESCRIPTOR, OTHER };

// As Python packs them: rows of 64-bit integers.
struct Operand {
    i64 kind, number, value, uniform, scale, bank, negative, inverted, reused, absolute;
};
constexpr int MAX_OPERANDS = 9;
struct Instruction {
    i64 op, pipe, modifiers, compare, bytes, stall, writes, reads, waits, yields, count;
    Operand guard, operands[MAX_OPERANDS];

    bool has(i64 modifier) const { return modifiers & modifier; }
};

// A tensor map of the copy engine: its array and box; extents and strides innermost first.
struct TensorMap {
    u64 address, base;
    i64 rank, dims[5], strides[4], box[5], im2col;
    i64 lower[2], upper[2], steps[2];  // im2col: the bounding box of the pixels
};

struct Setup {
    const Instruction* code;
    i64 length;
    const unsigned char* literals;  // constant bank 2
    i64 literal_bytes;
    i64 grid[3], block[3];
    i64 registers, shared_bytes, resident, l1_bytes;
    const i64* blocks;
    i64 block_count;
    const u64* arguments;
    i64 argument_count;
    const TensorMap* maps;
    i64 map_count;
    const double* parameters;
    i64 instruction_limit;
    i64 footprint;  // whether to keep the sectors that the first block touches
    const double* copy_costs;  // of a sector of each array for the copy engine, relative to one that no other block copies
    i64 array_count;
};

struct Result {
    double counters[COUNTERS];
    double* finished;      // [block_count]: when each block ended, in that order
    double* issued;        // [length]
    double* waited;        // [length][STALLS]: cycles that warps waited before it
    i64* pieces;           // [piece_limit][3]: array, first byte, bytes: what the first block touches, in runs
    i64 piece_limit, piece_count;
    i64 written;           // bit k: array k is written
    i64 ended;             // blocks that ended
    char message[256];
};

struct Block;

// Lanes of a warp with the same program counter.
struct Group {
    int pc;
    u32 mask;
    int blocked;  // RUNNING, AT_BARRIER or the number of a convergence barrier
};
constexpr int RUNNING = -1, AT_BARRIER = 100;

struct Warp {
    Block* block;
    int scheduler, number, slot;
    u32 lanes;                 // that have not exited
    u32* registers;            // [register][lane]
    u32 predicates[8], uniform[64], uniform_predicates;
    u32 convergence[16];
    std::vector<Group> groups;
    double scoreboard[SCOREBOARDS];
    bool from_memory[SCOREBOARDS];  // whether global memory set it last
    double ready, issued, ready_fixed, ready_code, copies;
    std::vector<double> copy_groups, product_groups;
    double product;            // when the last product of a warpgroup ends
    std::unordered_map<u32, u32> local;
    u64 age;
    const Instruction* next;   // null if no lane can continue
    int blocked_by;            // the Stall that delayed it when it was ready, or -1
    bool waiting, done;        // at a barrier or an mbarrier; ended

    u32* row(int number) { return registers + number * LANES; }
};

struct Mbarrier {
    i64 expected = 0, pending = 0, bytes = 0;
    u32 parity = 0;  // of the current phase
    struct Waiter {
        Warp* warp;
        u32 parity;
    };
    std::vector<Waiter> waiters;
};

struct Block {
    i64 number, index[3];
    std::vector<std::unique_ptr<Warp>> warps;
    std::vector<unsigned char> shared;
    std::vector<u32> registers;
    std::unordered_map<u32, Mbarrier> mbarriers;
    int live;
    int arrived[BARRIERS];
    double blocks_of_tile = 1;  // once it has arrived as the last of them, and the others have ended
};

struct Unsupported : std::runtime_error {
    using std::runtime_error::runtime_error;
};
