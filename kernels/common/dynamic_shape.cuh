// A layer's sizes, as constants of a build for one shape or as numbers of a build for every shape (DYNAMIC_SHAPE).
//
// Gives: SIZE, DIVISOR, MEMBER_SIZE and MEMBER_DIVISOR, which define a size at namespace scope or in a class; OF, which
// names a class's; FLAG and MEMBER_FLAG, the same for conditions; IF_SHAPE, an if on sizes that is decided by the
// compiler where it can be; KNOWN, whether the compiler knows that a condition on sizes holds; SHAPE_CONST, for a size in
// a function.
// Needs: with DYNAMIC_SHAPE, DYNAMIC_NUMBERS and for each number NUMBER_<NAME>, its place, from the ladder
// (kernels/dynamic.py).
//
// With DYNAMIC_SHAPE a size is an object without members that converts to an int: the number, or an expression of such
// objects, from constant memory, which instructions read like an immediate operand.  The numbers are written once, when
// a module is loaded for a shape.  A divisor's number comes with a multiplier and a shift that replace a division
// (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994).
#pragma once

#ifdef DYNAMIC_SHAPE
#include <type_traits>

struct ShapeNumber {
    int value;
    unsigned multiplier, shift;  // n / value == n * multiplier >> shift, for n below 2^31
};
extern "C" {
__constant__ ShapeNumber shape_numbers[DYNAMIC_NUMBERS];
}

template <int place>
struct NumberAt {
    __device__ __forceinline__ operator int() const { return shape_numbers[place].value; }
};

template <int place>
struct DivisorAt : NumberAt<place> {
    template <class Integer, std::enable_if_t<std::is_integral_v<Integer>, bool> = true>
    friend __device__ __forceinline__ Integer operator/(Integer n, DivisorAt divisor)
    {
        const ShapeNumber& by = shape_numbers[place];
        if constexpr (sizeof(Integer) <= sizeof(int))
            return Integer((unsigned long long)(unsigned)n * by.multiplier >> by.shift);
        else
            return n >> 31 ? n / by.value : Integer((unsigned long long)n * by.multiplier >> by.shift);
    }

    template <class Integer, std::enable_if_t<std::is_integral_v<Integer>, bool> = true>
    friend __device__ __forceinline__ Integer operator%(Integer n, DivisorAt divisor)
    {
        return n - n / divisor * shape_numbers[place].value;
    }
};

#define SIZE_CLASS(type, name, ...)                                                 \
    struct name {                                                                   \
        __device__ __forceinline__ operator type() const { return (__VA_ARGS__); } \
    }
#define SIZE(name, ...)                       \
    SIZE_CLASS(int, name##_SIZE, __VA_ARGS__); \
    __device__ constexpr name##_SIZE name {}
#define FLAG(name, ...)                         \
    SIZE_CLASS(bool, name##_FLAG, __VA_ARGS__); \
    __device__ constexpr name##_FLAG name {}
#define NUMBER(name, value) __device__ constexpr NumberAt<NUMBER_##name> name {}
#define DIVISOR(name, ...) __device__ constexpr DivisorAt<NUMBER_##name> name {}
#define MEMBER_SIZE(name, ...) SIZE_CLASS(int, name, __VA_ARGS__)
#define MEMBER_FLAG(name, ...) SIZE_CLASS(bool, name, __VA_ARGS__)
#define MEMBER_DIVISOR(name, number, ...) using name = DivisorAt<NUMBER_##number>
#define OF(Class, name) (typename Class::name{})
#define IF_SHAPE if
#define KNOWN(...) false
#define ARGUMENT(name) std::remove_const_t<decltype(name)>
#define SHAPE_CONST const
#define SHAPE_FUNCTION __device__ __forceinline__
#else
#define SIZE(name, ...) constexpr int name = __VA_ARGS__
#define FLAG(name, ...) constexpr bool name = __VA_ARGS__
#define NUMBER(name, value) constexpr int name = value
#define DIVISOR(name, ...) constexpr int name = __VA_ARGS__
#define MEMBER_SIZE(name, ...) static constexpr int name = __VA_ARGS__
#define MEMBER_FLAG(name, ...) static constexpr bool name = __VA_ARGS__
#define MEMBER_DIVISOR(name, number, ...) static constexpr int name = __VA_ARGS__
#define OF(Class, name) (Class::name)
#define IF_SHAPE if constexpr
#define KNOWN(...) (__VA_ARGS__)
#define ARGUMENT(name) name
#define SHAPE_CONST constexpr
#define SHAPE_FUNCTION constexpr
#endif
