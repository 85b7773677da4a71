/* Vectors of numbers as wide as the processor's: what the C kernels have in common.

   T is the type of the numbers, float unless the compiler is told otherwise; WHOLE an integer as wide. */

#ifndef FDSIM_VECTORS_H
#define FDSIM_VECTORS_H

#include <stddef.h>
#include <stdint.h>

#ifndef T
#define T float
#define WHOLE int32_t
#define SINGLE
#endif

/* AVX-512 comes with 32 registers, of whatever width, others with 16. AMD's Zen 4, which older compilers take for a
   Zen 3 with AVX-512, does 512 bits in two halves: shorter vectors waste less at the ends of rows. */
#if defined(__AVX512F__) && !defined(__znver3__) && !defined(__znver4__)
#define BYTES 64
#else
#define BYTES 32
#endif
#if defined(__AVX512VL__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif
#define LANES ((int64_t)(BYTES / sizeof(T)))

typedef T vec __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
typedef WHOLE mask __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
#define LOAD(p) (*(const vec *)(p))
#define STORE(p, a) (*(vec *)(p) = (a))
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
/* Keeps a number that is used several times in a register; compilers would rather read it again for each product. */
#if defined(__x86_64__)
#define HOLD(a) __asm__("" : "+v"(a))
#else
#define HOLD(a) (void)(a)
#endif

#endif
