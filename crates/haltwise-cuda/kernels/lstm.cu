// The two-head LSTM on a GPU: everything between a batch of sequences and new weights.
//
// Sizes. `hidden` is a multiple of 32 (the host pads with zeros, which stay zeros). Rows are
// steps: row t * batch + b is step t of sequence b. Gates are in PyTorch's order, gate by gate.
//
// The recurrence. A layer's weights stay on the chip for a whole sequence: a group of
// hidden / 16 blocks holds them in registers, 16 units (64 gate rows) each, and works on a
// slice of N sequences. Slices do not know of each other. After each step a block hands what
// it computed to the others of its group through a ring of two slots in global memory. Each word
// of the ring carries its own news: its lowest bit says in which lap it was written, so that a
// reader polls the data itself, and neither flag nor fence is needed. Two slots are
// enough: a block writes step t only after it has read step t - 1 of all others, which they
// wrote only after they had read step t - 2, whose slot is the one written to.
//
// To score with two layers, both are gone through at the same time: see `wave`. Where there are
// many sequences to score, nothing is handed over at all: see `many`.
//
// Products. Tensor cores multiply 16-bit numbers and add up in 32 bits. Each float is
// split into a high and a low half; high·high + high·low + low·high leaves out only low·low. On
// the way forward the halves are float16, which keeps 22 bits: states are at most 1, and weights
// are taken times 64, so that their low halves stay normal numbers. On the way back they are
// bfloat16, 16 bits with the range of float32, because gradients have no natural size.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define SHARED(type, name) extern __shared__ __align__(16) type name[]

typedef unsigned int u32;

// What another block may be writing at this moment: past all caches but the one they share.
__device__ __forceinline__ uint4 fresh4(const uint4 *from) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

__device__ __forceinline__ void publish(u32 *to, u32 v) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}

__device__ __forceinline__ void publish4(uint4 *to, uint4 v) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

__device__ __forceinline__ void publish2(uint2 *to, uint2 v) {
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(v.x), "r"(v.y)
                 : "memory");
}

// Copies from global to shared memory that go on by themselves; the first past all caches but the
// one that blocks share.
__device__ __forceinline__ void copy_fresh(uint4 *to, const uint4 *from) {
    const u32 address = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

__device__ __forceinline__ void copy_float(float *to, const float *from) {
    const u32 address = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
}

__device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ u32 bits_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ float float_of(u32 x) { return __uint_as_float(x); }

struct Half {
    static constexpr float WEIGHTS = 64.0f;
    // Two floats rounded, the first in the low 16 bits.
    static __device__ __forceinline__ u32 pack(float a, float b) {
        __half2 h = __floats2half2_rn(a, b);
        return *reinterpret_cast<u32 *>(&h);
    }
    static __device__ __forceinline__ float low(u32 v) {
        return __low2float(*reinterpret_cast<__half2 *>(&v));
    }
    static __device__ __forceinline__ float high(u32 v) {
        return __high2float(*reinterpret_cast<__half2 *>(&v));
    }
    static __device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0,
                                                    u32 b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

struct Brain {
    static constexpr float WEIGHTS = 1.0f;
    static __device__ __forceinline__ u32 pack(float a, float b) {
        __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
        return *reinterpret_cast<u32 *>(&h);
    }
    static __device__ __forceinline__ float low(u32 v) { return float_of(v << 16); }
    static __device__ __forceinline__ float high(u32 v) { return float_of(v & 0xffff0000u); }
    static __device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0,
                                                    u32 b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

#define THREADS 256
// Threads of a block that scores many sequences.
#define MANY_THREADS 512
// Units of a block of the recurrence: as many as a matrix instruction has rows.
#define UNITS 16

// Four numbers that follow each other along the summed index, split: {high 0 1, high 2 3,
// low 0 1, low 2 3}. The matrix instruction wants its thread c of four to hold the summed
// indices 2c, 2c + 1, 2c + 8, 2c + 9; as sums may run in any order, it gets 4c to 4c + 3,
// which are 16 bytes of memory, as long as both factors are laid out so.
template <class F> __device__ __forceinline__ uint4 split(float a, float b, float c, float d) {
    uint4 v;
    v.x = F::pack(a, b);
    v.y = F::pack(c, d);
    v.z = F::pack(a - F::low(v.x), b - F::high(v.x));
    v.w = F::pack(c - F::low(v.y), d - F::high(v.y));
    return v;
}

// The rows r and r + 8 of a factor, as the matrix instruction takes them.
__device__ __forceinline__ void row_pair(u32 (&high)[4], u32 (&low)[4], uint4 r, uint4 r8) {
    high[0] = r.x;
    high[1] = r8.x;
    high[2] = r.y;
    high[3] = r8.y;
    low[0] = r.z;
    low[1] = r8.z;
    low[2] = r.w;
    low[3] = r8.w;
}

// A factor that lies in memory as the matrix instruction takes it.
__device__ __forceinline__ void words(u32 (&to)[4], uint4 v) {
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}

// Without a care for numbers below the normal ones; beyond the largest, the limits are right.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#define LOG2_E 1.4426950408889634f

__device__ __forceinline__ float sigmoid(float x) {
    return reciprocal(1.0f + power_of_two(-LOG2_E * x));
}

__device__ __forceinline__ float tangent(float x) {
    return 1.0f - 2.0f * reciprocal(1.0f + power_of_two(2.0f * LOG2_E * x));
}

// One layer over all steps. KS: summed indices of a warp, in sixteens, at the most; NT:
// sequences of a slice, in eights.
//   weights    [4 * hidden][hidden]
//   projected  [steps][batch][4 * hidden]: inputs times their weights, plus the bias
//   ring       [2][slice][hidden / 16][N][4] chunks of 16 bytes, all ones
//   states     [steps + 1][batch][hidden], the first of zeros
//   gates      [steps][batch][hidden][4], or null
//   cells      [steps + 1][batch][hidden], the first of zeros, or null
template <int KS, int NT>
__device__ __forceinline__ void
forward(const float *__restrict__ weights, const float *__restrict__ projected, uint4 *ring,
        float *__restrict__ states, float4 *__restrict__ gates, float *__restrict__ cells, int steps,
        int hidden, int batch) {
    constexpr int N = 8 * NT;
    constexpr int CELLS = (N * UNITS + THREADS - 1) / THREADS;
    // Independent sums, so that one instruction need not wait for the last.
    constexpr int CHAINS = NT <= 2 ? 3 : 1;
    // Chunks a thread polls at a time.
    constexpr int FETCH = KS * NT / 4 < 8 ? KS * NT / 4 : 8;
    constexpr int ROW = UNITS + 4;

    const int groups = hidden / UNITS, chunks = groups * N * 4;
    SHARED(uint4, memory);
    uint4 *operand = memory;
    float *sums = reinterpret_cast<float *>(memory + chunks);

    const int group = blockIdx.x, slice = blockIdx.y, slices = gridDim.y;
    const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
    const int gate = warp & 3, half = warp >> 2, depth = groups / 2;

    u32 high[KS][4], low[KS][4];
#pragma unroll
    for (int k = 0; k < KS; k++) {
        uint4 rows[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
        if (k < depth) {
            for (int r = 0; r < 2; r++) {
                const int unit = group * UNITS + lane / 4 + 8 * r;
                const float *w = weights + (size_t)(gate * hidden + unit) * hidden +
                                 (half * depth + k) * 16 + 4 * (lane & 3);
                rows[r] = split<Half>(Half::WEIGHTS * w[0], Half::WEIGHTS * w[1],
                                      Half::WEIGHTS * w[2], Half::WEIGHTS * w[3]);
            }
        }
        row_pair(high[k], low[k], rows[0], rows[1]);
    }

    float cell[CELLS];
#pragma unroll
    for (int j = 0; j < CELLS; j++)
        cell[j] = 0.0f;

    for (int t = 0; t < steps; t++) {
        float z[CELLS][4];
#pragma unroll
        for (int j = 0; j < CELLS; j++) {
            const int i = thread + THREADS * j, unit = group * UNITS + (i & 15);
            if (i < N * UNITS) {
                const size_t row = (size_t)t * batch + slice * N + (i >> 4);
#pragma unroll
                for (int q = 0; q < 4; q++)
                    z[j][q] = projected[row * 4 * hidden + q * hidden + unit];
            }
        }
        if (t > 0) {
            const u32 lap = ((t - 1) >> 1) & 1;
            const uint4 *from = ring + (size_t)(((t - 1) & 1) * slices + slice) * chunks;
            for (int first = thread; first < chunks; first += THREADS * FETCH) {
                uint4 v[FETCH];
                bool waiting;
                do {
                    waiting = false;
#pragma unroll
                    for (int j = 0; j < FETCH; j++)
                        if (first + THREADS * j < chunks)
                            v[j] = fresh4(from + first + THREADS * j);
#pragma unroll
                    for (int j = 0; j < FETCH; j++)
                        if (first + THREADS * j < chunks)
                            waiting |= (((v[j].x ^ lap) | (v[j].y ^ lap) | (v[j].z ^ lap) |
                                         (v[j].w ^ lap)) & 1) != 0;
                } while (waiting);
#pragma unroll
                for (int j = 0; j < FETCH; j++)
                    if (first + THREADS * j < chunks)
                        operand[first + THREADS * j] = v[j];
            }
            __syncthreads();
            float acc[NT][CHAINS][4];
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int c = 0; c < CHAINS; c++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        acc[n][c][i] = 0.0f;
#pragma unroll
            for (int k = 0; k < KS; k++) {
                if (k < depth) {
#pragma unroll
                    for (int n = 0; n < NT; n++) {
                        const uint4 b = operand[((half * depth + k) * N + 8 * n) * 4 + lane];
                        Half::multiply(acc[n][0], high[k], b.x, b.y);
                        Half::multiply(acc[n][CHAINS > 1], high[k], b.z, b.w);
                        Half::multiply(acc[n][CHAINS > 1 ? 2 : 0], low[k], b.x, b.y);
                    }
                }
            }
            float *mine = sums + (half * 4 + gate) * N * ROW;
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float s = acc[n][0][i];
                    if (CHAINS > 1)
                        s += acc[n][CHAINS > 1][i] + acc[n][CHAINS > 1 ? 2 : 0][i];
                    const int column = 8 * n + 2 * (lane & 3) + (i & 1);
                    mine[column * ROW + lane / 4 + 8 * (i >> 1)] = s;
                }
            __syncthreads();
        }
        const u32 lap = (t >> 1) & 1;
        u32 *to = reinterpret_cast<u32 *>(ring + (size_t)((t & 1) * slices + slice) * chunks +
                                          group * N * 4);
#pragma unroll
        for (int j = 0; j < CELLS; j++) {
            const int i = thread + THREADS * j, u = i & 15, n = i >> 4;
            if (i < N * UNITS) {
                if (t > 0) {
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        z[j][q] += (sums[(q * N + n) * ROW + u] + sums[((4 + q) * N + n) * ROW + u]) *
                                   (1.0f / Half::WEIGHTS);
                }
                const float in = sigmoid(z[j][0]), forget = sigmoid(z[j][1]);
                const float fresh_cell = tangent(z[j][2]), out = sigmoid(z[j][3]);
                cell[j] = forget * cell[j] + in * fresh_cell;
                const float h = out * tangent(cell[j]);
                // The even ones of each pair carry the lap in the lowest bit of both halves.
                u32 hi = Half::pack(h, 0.0f) & 0xffffu;
                if ((u & 1) == 0)
                    hi = (hi & ~1u) | lap;
                u32 lo = Half::pack(h - Half::low(hi), 0.0f) & 0xffffu;
                if ((u & 1) == 0)
                    lo = (lo & ~1u) | lap;
                // Thread w of four gathers word w: the high halves of 0 1, of 2 3, the low ones.
                const u32 both = hi | lo << 16;
                const int pair = (lane & ~3) + 2 * (u & 1);
                const u32 a = __shfl_sync(0xffffffffu, both, pair);
                const u32 b = __shfl_sync(0xffffffffu, both, pair + 1);
                const u32 word = (u & 2) ? (a >> 16) | (b & 0xffff0000u) : (a & 0xffffu) | b << 16;
                publish(to + n * 16 + u, word);
                const size_t row = (size_t)t * batch + slice * N + n;
                const int unit = group * UNITS + u;
                states[(row + batch) * hidden + unit] = h;
                if (gates) {
                    gates[row * hidden + unit] = make_float4(in, forget, fresh_cell, out);
                    cells[(row + batch) * hidden + unit] = cell[j];
                }
            }
        }
    }
}

// The way back through one layer.
//   above    [steps][batch][hidden]: the gradients of the states, as seen from above
//   ring     [2][slice][to][from][NT][32] chunks of 16 bytes, all ones: what a thread holds after
//            the matrix instructions of a tile
//   slopes   [steps][batch][4 * hidden]: the gradients of what went into the gates
// A block multiplies the slopes of its own gates with its own rows of the weights: its share in
// the gradients of all states, which it hands to those that they belong to.
template <int KS, int NT>
__device__ __forceinline__ void
backward(const float *__restrict__ weights, const float *__restrict__ above,
         const float4 *__restrict__ gates, const float *__restrict__ cells, uint4 *ring,
         float *__restrict__ slopes, int steps, int hidden, int batch) {
    constexpr int N = 8 * NT;
    constexpr int CELLS = (N * UNITS + THREADS - 1) / THREADS;
    constexpr int MT = (KS + 3) / 4;
    constexpr int CHAINS = NT * MT <= 4 ? 3 : 1;
    // The chunks of a sender, and how many senders are read at the same time.
    constexpr int CHUNKS = 32 * NT, TEAMS = THREADS / CHUNKS;
    constexpr int FETCH = KS * NT / 4 < 8 ? KS * NT / 4 : 8;
    constexpr int ROW = UNITS + 4;

    SHARED(uint4, memory);
    float *sums = reinterpret_cast<float *>(memory + 2 * 4 * N * 4);
    const int groups = hidden / UNITS;
    const int group = blockIdx.x, slice = blockIdx.y, slices = gridDim.y;
    const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;

    u32 high[MT][4][4], low[MT][4][4];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int q = 0; q < 4; q++) {
            uint4 rows[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
            const int tile = warp + 8 * m;
            if (tile < groups) {
                for (int r = 0; r < 2; r++) {
                    const float *w =
                        weights + (size_t)(q * hidden + group * UNITS + 4 * (lane & 3)) * hidden +
                        tile * UNITS + lane / 4 + 8 * r;
                    rows[r] = split<Brain>(w[0], w[hidden], w[2 * hidden], w[3 * hidden]);
                }
            }
            row_pair(high[m][q], low[m][q], rows[0], rows[1]);
        }

    float from_later[CELLS];
#pragma unroll
    for (int j = 0; j < CELLS; j++)
        from_later[j] = 0.0f;

    for (int s = 0; s < steps; s++) {
        const int t = steps - 1 - s;
        uint4 *operand = memory + (s & 1) * 4 * N * 4;
        float from_above[CELLS], before[CELLS], after[CELLS];
        float4 kept[CELLS];
#pragma unroll
        for (int j = 0; j < CELLS; j++) {
            const int i = thread + THREADS * j, unit = group * UNITS + (i & 15);
            if (i < N * UNITS) {
                const size_t row = (size_t)t * batch + slice * N + (i >> 4);
                from_above[j] = above[row * hidden + unit];
                kept[j] = gates[row * hidden + unit];
                before[j] = cells[row * hidden + unit];
                after[j] = cells[(row + batch) * hidden + unit];
            }
        }
        if (s > 0) {
            const u32 lap = ((s - 1) >> 1) & 1;
            const int team = thread / CHUNKS, place = thread % CHUNKS;
            const uint4 *from = ring + ((size_t)(((s - 1) & 1) * slices + slice) * groups + group) *
                                           groups * CHUNKS + place;
            float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            for (int first = team; first < groups; first += TEAMS * FETCH) {
                uint4 v[FETCH];
                bool waiting;
                do {
                    waiting = false;
#pragma unroll
                    for (int k = 0; k < FETCH; k++)
                        if (first + TEAMS * k < groups)
                            v[k] = fresh4(from + (first + TEAMS * k) * CHUNKS);
#pragma unroll
                    for (int k = 0; k < FETCH; k++)
                        if (first + TEAMS * k < groups)
                            waiting |= (((v[k].x ^ lap) | (v[k].y ^ lap) | (v[k].z ^ lap) |
                                         (v[k].w ^ lap)) & 1) != 0;
                } while (waiting);
#pragma unroll
                for (int k = 0; k < FETCH; k++)
                    if (first + TEAMS * k < groups) {
                        sum[0] += float_of(v[k].x);
                        sum[1] += float_of(v[k].y);
                        sum[2] += float_of(v[k].z);
                        sum[3] += float_of(v[k].w);
                    }
            }
            float *mine = sums + team * N * ROW;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int column = 8 * (place / 32) + 2 * (lane & 3) + (i & 1);
                mine[column * ROW + lane / 4 + 8 * (i >> 1)] = sum[i];
            }
            __syncthreads();
        }
#pragma unroll
        for (int j = 0; j < CELLS; j++) {
            const int i = thread + THREADS * j, u = i & 15, n = i >> 4;
            if (i < N * UNITS) {
                const int unit = group * UNITS + u;
                const size_t row = (size_t)t * batch + slice * N + n;
                float dh = from_above[j];
                if (s > 0) {
#pragma unroll
                    for (int k = 0; k < TEAMS; k++)
                        dh += sums[(k * N + n) * ROW + u];
                }
                const float in = kept[j].x, forget = kept[j].y, fresh_cell = kept[j].z, out = kept[j].w;
                const float bent = tangent(after[j]);
                const float dc = dh * out * (1.0f - bent * bent) + from_later[j];
                from_later[j] = dc * forget;
                const float slope[4] = {
                    dc * fresh_cell * (in * (1.0f - in)), dc * before[j] * (forget * (1.0f - forget)),
                    dc * in * (1.0f - fresh_cell * fresh_cell), dh * bent * (out * (1.0f - out))};
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    slopes[row * 4 * hidden + q * hidden + unit] = slope[q];
                    const u32 hi = Brain::pack(slope[q], 0.0f);
                    const u32 lo = Brain::pack(slope[q] - Brain::low(hi), 0.0f);
                    unsigned short *chunk =
                        reinterpret_cast<unsigned short *>(operand + (q * N + n) * 4 + u / 4);
                    chunk[u & 3] = (unsigned short)hi;
                    chunk[4 + (u & 3)] = (unsigned short)lo;
                }
            }
        }
        if (t == 0)
            break;
        __syncthreads();
        const u32 lap = (s >> 1) & 1;
#pragma unroll
        for (int m = 0; m < MT; m++) {
            const int tile = warp + 8 * m;
            if (tile < groups) {
                float acc[NT][CHAINS][4];
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                    for (int c = 0; c < CHAINS; c++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            acc[n][c][i] = 0.0f;
#pragma unroll
                for (int q = 0; q < 4; q++)
#pragma unroll
                    for (int n = 0; n < NT; n++) {
                        const uint4 b = operand[(q * N + 8 * n) * 4 + lane];
                        Brain::multiply(acc[n][0], high[m][q], b.x, b.y);
                        Brain::multiply(acc[n][CHAINS > 1], high[m][q], b.z, b.w);
                        Brain::multiply(acc[n][CHAINS > 1 ? 2 : 0], low[m][q], b.x, b.y);
                    }
                uint4 *to = ring + (((size_t)((s & 1) * slices + slice) * groups + tile) * groups +
                                    group) * CHUNKS + lane;
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    u32 share[4];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        float sum = acc[n][0][i];
                        if (CHAINS > 1)
                            sum += acc[n][CHAINS > 1][i] + acc[n][CHAINS > 1 ? 2 : 0][i];
                        share[i] = (bits_of(sum) & ~1u) | lap;
                    }
                    publish4(to + 32 * n, make_uint4(share[0], share[1], share[2], share[3]));
                }
            }
        }
    }
}

// out[z][m][n] = sum over k of a(m, k) * b(n, k), k in part z of the summed index, times
// `scale`, plus bias[n]. A factor whose summed index is contiguous is [row][k], else [k][row].
// Tiles of 128 by 128, 32 summed indices at a time, through two stages of shared memory.
#define TILE 128
#define DEPTH 32

template <bool CONTIGUOUS>
__device__ __forceinline__ void fetch(float (&v)[4][4], const float *from, int stride, int first_row,
                                      int rows, int first_k, int end_k) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int i = threadIdx.x + THREADS * j;
        const int row = CONTIGUOUS ? (i >> 2) & (TILE - 1) : i & (TILE - 1);
        const int k = first_k + 4 * (CONTIGUOUS ? (i & 3) + 4 * (i >> 9) : i >> 7);
        const bool inside = first_row + row < rows && k < end_k;
        if (CONTIGUOUS) {
            float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (inside)
                x = *reinterpret_cast<const float4 *>(from + (size_t)(first_row + row) * stride + k);
            v[j][0] = x.x;
            v[j][1] = x.y;
            v[j][2] = x.z;
            v[j][3] = x.w;
        } else {
#pragma unroll
            for (int l = 0; l < 4; l++)
                v[j][l] = inside ? from[(size_t)(k + l) * stride + first_row + row] : 0.0f;
        }
    }
}

template <class F, bool CONTIGUOUS>
__device__ __forceinline__ void place(uint4 *to, const float (&v)[4][4], float factor) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int i = threadIdx.x + THREADS * j;
        const int row = CONTIGUOUS ? (i >> 2) & (TILE - 1) : i & (TILE - 1);
        const int chunk = CONTIGUOUS ? (i & 3) + 4 * (i >> 9) : i >> 7;
        // Turned by the row, so that neither rows nor chunks meet in a bank.
        to[((chunk >> 2) * TILE + row) * 4 + ((chunk & 3) ^ ((row >> 1) & 3))] = split<F>(
            factor * v[j][0], factor * v[j][1], factor * v[j][2], factor * v[j][3]);
    }
}

__device__ __forceinline__ uint4 chunk_of(const uint4 *from, int step, int row, int c) {
    return from[(step * TILE + row) * 4 + (c ^ ((row >> 1) & 3))];
}

template <class F, bool A_CONTIGUOUS, bool B_CONTIGUOUS>
__device__ __forceinline__ void product(const float *__restrict__ a, int a_stride,
                                        const float *__restrict__ b, int b_stride,
                                        const float *__restrict__ bias, float *__restrict__ out,
                                        int m, int n, int k, int part) {
    SHARED(uint4, memory);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int first_m = blockIdx.x * TILE, first_n = blockIdx.y * TILE;
    const int first_k = blockIdx.z * part, end_k = first_k + part < k ? first_k + part : k;
    const int warp_m = (warp & 1) * 64, warp_n = (warp >> 1) * 32;
    constexpr int STAGE = 2 * TILE * 2 * 4;

    float acc[4][4][4];
#pragma unroll
    for (int i = 0; i < 64; i++)
        acc[i >> 4][(i >> 2) & 3][i & 3] = 0.0f;

    float va[4][4], vb[4][4];
    fetch<A_CONTIGUOUS>(va, a, a_stride, first_m, m, first_k, end_k);
    fetch<B_CONTIGUOUS>(vb, b, b_stride, first_n, n, first_k, end_k);
    int stage = 0;
    for (int at = first_k; at < end_k; at += DEPTH) {
        uint4 *sa = memory + stage * STAGE, *sb = sa + TILE * 2 * 4;
        place<F, A_CONTIGUOUS>(sa, va, 1.0f);
        place<F, B_CONTIGUOUS>(sb, vb, F::WEIGHTS);
        __syncthreads();
        if (at + DEPTH < end_k) {
            fetch<A_CONTIGUOUS>(va, a, a_stride, first_m, m, at + DEPTH, end_k);
            fetch<B_CONTIGUOUS>(vb, b, b_stride, first_n, n, at + DEPTH, end_k);
        }
#pragma unroll
        for (int step = 0; step < DEPTH / 16; step++) {
            u32 high[4][4], low[4][4];
            uint4 y[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = warp_m + 16 * i + lane / 4;
                row_pair(high[i], low[i], chunk_of(sa, step, row, lane & 3),
                         chunk_of(sa, step, row + 8, lane & 3));
                y[i] = chunk_of(sb, step, warp_n + 8 * i + lane / 4, lane & 3);
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    F::multiply(acc[i][j], high[i], y[j].z, y[j].w);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    F::multiply(acc[i][j], low[i], y[j].x, y[j].y);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    F::multiply(acc[i][j], high[i], y[j].x, y[j].y);
        }
        stage ^= 1;
    }
    out += (size_t)blockIdx.z * m * n;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e += 2) {
                const int row = first_m + warp_m + 16 * i + lane / 4 + 4 * e;
                const int column = first_n + warp_n + 8 * j + 2 * (lane & 3);
                if (row < m && column < n) {
                    float2 v = make_float2(acc[i][j][e] * (1.0f / F::WEIGHTS),
                                           acc[i][j][e + 1] * (1.0f / F::WEIGHTS));
                    if (bias) {
                        v.x += bias[column];
                        v.y += bias[column + 1];
                    }
                    *reinterpret_cast<float2 *>(out + (size_t)row * n + column) = v;
                }
            }
}

// All layers over all steps, for many sequences: a block takes 8 * NT of them through the whole
// network and knows of no other block. Their states stay in its shared memory, split as the
// matrix instruction takes them; the weights pass by from the cache that all blocks share, and each
// is used for all sequences of the block. AHEAD: how many sixteens they are fetched ahead.
//
// There is room for the states of all layers and of one more. A layer writes its new states where
// there is room, after which the place of its old ones is free, for the next layer.
//   packed  per layer, see `pack_weights`: the weights of the layer below, then its own
//   inputs  [steps][batch][features]
//   cells   [block][layer][hidden / 8][NT][32] pairs
//   states  [steps + 1][batch][hidden], those of the last layer; the first row is not touched
template <int NT, int AHEAD>
__device__ __forceinline__ void many(const float *__restrict__ parameters,
                                     const uint4 *__restrict__ packed,
                                     const float *__restrict__ inputs, float2 *__restrict__ cells,
                                     float *__restrict__ states, int steps, int features,
                                     int hidden, int layers, int batch) {
    constexpr int N = 8 * NT, WARPS = MANY_THREADS / 32;
    SHARED(uint4, memory);
    const int depth = hidden / 16, chunks = depth * N * 4, places = layers + 1;
    const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, pair = 2 * (lane & 3);
    const int first = blockIdx.x * N;
    for (int i = thread; i < places * chunks; i += MANY_THREADS)
        memory[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    cells += (size_t)blockIdx.x * layers * hidden * (N / 2);
    for (int t = 0; t < steps; t++) {
        const float *weights = parameters;
        const uint4 *tiles = packed;
        for (int layer = 0; layer < layers; layer++) {
            const int turn = 2 * places + layer - t % places;
            const uint4 *own = memory + turn % places * chunks;
            const uint4 *below = memory + (turn - 2) % places * chunks;
            unsigned short *to =
                reinterpret_cast<unsigned short *>(memory + (turn - 1) % places * chunks);
            const int width = layer ? hidden : features, skip = layer ? depth : 0;
            const int total = skip + depth;
            const float *bias = weights + (size_t)4 * hidden * (width + hidden);
            for (int eight = warp; eight < hidden / 8; eight += WARPS) {
                const int unit = 8 * eight + lane / 4;
                const uint4 *tile = tiles + (size_t)eight * total * 128 + lane;
                uint4 a[AHEAD][4];
#pragma unroll
                for (int s = 0; s < AHEAD; s++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        a[s][i] = __ldg(tile + (s * 4 + i) * 32);
                // Of gate q: acc[q / 2][n][2 * (q % 2)] and the next, for two sequences.
                float acc[2][NT][4];
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    const float b = Half::WEIGHTS * __ldg(bias + q * hidden + unit);
#pragma unroll
                    for (int n = 0; n < NT; n++)
                        acc[q >> 1][n][2 * (q & 1)] = acc[q >> 1][n][2 * (q & 1) + 1] = b;
                }
                // The inputs in plain float32: nothing is known of their size.
                for (int f = 0; layer == 0 && f < features; f++) {
                    float w[4];
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        w[q] = Half::WEIGHTS * __ldg(weights + (q * hidden + unit) * features + f);
#pragma unroll
                    for (int n = 0; n < NT; n++)
#pragma unroll
                        for (int j = 0; j < 2; j++) {
                            const size_t row = (size_t)t * batch + first + 8 * n + pair + j;
                            const float x = __ldg(inputs + row * features + f);
#pragma unroll
                            for (int q = 0; q < 4; q++) {
                                float &z = acc[q >> 1][n][2 * (q & 1) + j];
                                z = fmaf(w[q], x, z);
                            }
                        }
                }
                for (int k = 0; k < total; k += AHEAD) {
                    const uint4 *from =
                        (k < skip ? below + k * N * 4 : own + (k - skip) * N * 4) + lane;
#pragma unroll
                    for (int s = 0; s < AHEAD; s++) {
                        u32 high[2][4], low[2][4];
#pragma unroll
                        for (int m = 0; m < 2; m++) {
                            words(high[m], a[s][2 * m]);
                            words(low[m], a[s][2 * m + 1]);
                        }
                        if (k + AHEAD < total)
#pragma unroll
                            for (int i = 0; i < 4; i++)
                                a[s][i] = __ldg(tile + ((k + s + AHEAD) * 4 + i) * 32);
                        // Three tiles at a time, so that no instruction waits for the last.
#pragma unroll
                        for (int g = 0; g < NT; g += 3) {
                            uint4 b[3];
#pragma unroll
                            for (int n = 0; n < 3; n++)
                                if (g + n < NT)
                                    b[n] = from[(s * N + 8 * (g + n)) * 4];
#pragma unroll
                            for (int n = 0; n < 3; n++)
#pragma unroll
                                for (int m = 0; m < 2; m++)
                                    if (g + n < NT)
                                        Half::multiply(acc[m][g + n], high[m], b[n].z, b[n].w);
#pragma unroll
                            for (int n = 0; n < 3; n++)
#pragma unroll
                                for (int m = 0; m < 2; m++)
                                    if (g + n < NT)
                                        Half::multiply(acc[m][g + n], low[m], b[n].x, b[n].y);
#pragma unroll
                            for (int n = 0; n < 3; n++)
#pragma unroll
                                for (int m = 0; m < 2; m++)
                                    if (g + n < NT)
                                        Half::multiply(acc[m][g + n], high[m], b[n].x, b[n].y);
                        }
                    }
                }
                float2 *kept = cells + ((size_t)layer * (hidden / 8) + eight) * (NT * 32) + lane;
                unsigned short *put = to + (unit / 16 * N * 4 + (unit & 15) / 4) * 8 + (unit & 3);
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    float2 cell = t ? kept[n * 32] : make_float2(0.0f, 0.0f);
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        constexpr float SCALE = 1.0f / Half::WEIGHTS;
                        const float in = sigmoid(acc[0][n][j] * SCALE);
                        const float forget = sigmoid(acc[0][n][2 + j] * SCALE);
                        const float fresh_cell = tangent(acc[1][n][j] * SCALE);
                        const float out = sigmoid(acc[1][n][2 + j] * SCALE);
                        float &c = j ? cell.y : cell.x;
                        c = forget * c + in * fresh_cell;
                        const float h = out * tangent(c);
                        const int sequence = 8 * n + pair + j;
                        const u32 hi = Half::pack(h, 0.0f);
                        put[sequence * 32] = (unsigned short)hi;
                        put[sequence * 32 + 4] =
                            (unsigned short)Half::pack(h - Half::low(hi), 0.0f);
                        if (layer == layers - 1)
                            states[((size_t)(t + 1) * batch + first + sequence) * hidden + unit] =
                                h;
                    }
                    kept[n * 32] = cell;
                }
            }
            weights = bias + 4 * hidden;
            tiles += (size_t)(hidden / 8) * total * 128;
            __syncthreads();
        }
    }
}

// Two layers of 256 units over all steps, as a wave: in phase s the first does step s and the second
// step s - 1, so that one exchange serves both, and the second takes the first's states from where
// the first needs them itself. A group of 16 blocks does a slice of PARTS parts of 8 * NT
// sequences, in turns; while it works on one part, the states of the other arrive.
//
// Warps 0 to 7 have the first eight units of the block, the others the second: four of them the input
// and forget gates of both layers and four the new cells and output gates, each of the four a quarter
// of what is summed over. The weights of the second layer are in registers, the recurrent ones of
// the first in shared memory. The sums of a layer and eight sequences are an item: of each eight
// warps, warp i adds up item i from the shares of all, and has all four gates of its units.
//   parameters  of both layers
//   inputs      [steps][batch][features], up to 16 features
//   ring        [2][slice][part][layer][16][8 * NT][4] chunks of 16 bytes, all ones
//   states      [steps + 1][batch][256], those of the second layer; the first row is not touched
#define WAVE_UNITS 256
#define WAVE_THREADS 512

template <int NT, int PARTS>
__device__ __forceinline__ void wave(const float *__restrict__ parameters,
                                     const float *__restrict__ inputs, uint4 *ring,
                                     float *__restrict__ states, int steps, int features,
                                     int batch) {
    constexpr int N = 8 * NT, KS = 4, ITEMS = 2 * NT, WARPS = WAVE_THREADS / 32;
    constexpr int GROUPS = WAVE_UNITS / UNITS, CHUNKS = 2 * GROUPS * N * 4, MATRIX = 4 * 256 * 256;
    // The shares in the sums take the room of the states that they were made of.
    static_assert(CHUNKS == 2 * ITEMS * 4 * 2 * 32, "there is just room for the shares");
    SHARED(uint4, memory);
    uint4 *operands = memory + WARPS * KS * 2 * 32;
    float2 *cells = reinterpret_cast<float2 *>(operands + PARTS * CHUNKS);
    // Of each unit of this block, four gates: biases of the second layer, of the first, and the
    // weights of the inputs.
    float4 *small = reinterpret_cast<float4 *>(cells + PARTS * WAVE_THREADS);
    // Features in fours, the last filled up with zeros.
    const int rows = (features + 3) / 4 * 4;
    float *values = reinterpret_cast<float *>(small + (rows + 2) * UNITS);

    const int group = blockIdx.x, slice = blockIdx.y, slices = gridDim.y;
    const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
    const int eight = warp >> 3, item = warp & 7, gates = item >> 2, quarter = warp & 3;
    const int pair = 2 * (lane & 3), r = (lane >> 2) & 3;
    const int unit = 8 * eight + lane / 4;
    const float *first_own = parameters + 4 * WAVE_UNITS * features;
    const float *below = first_own + MATRIX + 4 * WAVE_UNITS, *own = below + MATRIX;

    u32 below_high[KS][4], below_low[KS][4], own_high[KS][4], own_low[KS][4];
    uint4 *tile = memory + warp * KS * 2 * 32 + lane;
#pragma unroll
    for (int k = 0; k < KS; k++) {
        const auto take = [&](u32(&high)[4], u32(&low)[4], const float *weights) {
            uint4 row[2];
            for (int i = 0; i < 2; i++) {
                const float *w = weights + 16 * (quarter + 4 * k) + 2 * pair +
                                 ((2 * gates + i) * WAVE_UNITS + group * UNITS + unit) * WAVE_UNITS;
                row[i] = split<Half>(Half::WEIGHTS * w[0], Half::WEIGHTS * w[1],
                                     Half::WEIGHTS * w[2], Half::WEIGHTS * w[3]);
            }
            row_pair(high, low, row[0], row[1]);
        };
        take(below_high[k], below_low[k], below);
        take(own_high[k], own_low[k], own);
        u32 high[4], low[4];
        take(high, low, first_own);
        tile[2 * k * 32] = make_uint4(high[0], high[1], high[2], high[3]);
        tile[(2 * k + 1) * 32] = make_uint4(low[0], low[1], low[2], low[3]);
    }
    for (int i = 0; i < PARTS; i++)
        cells[i * WAVE_THREADS + thread] = make_float2(0.0f, 0.0f);
    for (int i = thread; i < PARTS * CHUNKS; i += WAVE_THREADS)
        operands[i] = make_uint4(0, 0, 0, 0);
    for (int i = thread; i < PARTS * rows * N; i += WAVE_THREADS)
        values[i] = 0.0f;
    for (int i = thread; i < (rows + 2) * UNITS * 4; i += WAVE_THREADS) {
        const int row = i / (UNITS * 4), q = i & 3;
        const int at = q * WAVE_UNITS + group * UNITS + i / 4 % UNITS;
        const float *from = row == 0   ? own + MATRIX + at
                            : row == 1 ? first_own + MATRIX + at
                                       : parameters + at * features + row - 2;
        reinterpret_cast<float *>(small)[i] = row < features + 2 ? *from : 0.0f;
    }

    const bool second = item >= NT;
    const int sequence = 8 * (item % NT) + pair;
    const size_t slot = (size_t)slices * PARTS * CHUNKS;
    ring += slice * PARTS * CHUNKS;
    const int chunk = ((second ? GROUPS : 0) + group) * N + sequence + (r & 1);
    uint2 *out = reinterpret_cast<uint2 *>(ring + 4 * chunk + 2 * eight + lane / 16) + r / 2;
    // Where the states of a turn go, and where its inputs come from, kept as [feature][sequence].
    float *state =
        states + (size_t)(slice * PARTS * N + sequence) * WAVE_UNITS + group * UNITS + unit;
    const bool brings = thread < N * features;
    const float *input = inputs + (size_t)slice * PARTS * N * features;
    if (brings)
        input += thread % N * features + thread / N;
    const auto fetch_inputs = [&](int turn) {
        if (brings && turn < steps * PARTS) {
            copy_float(values + turn % PARTS * N * rows + thread, input);
            input += ((turn + 1) % PARTS ? N : batch - (PARTS - 1) * N) * features;
        }
    };
    __syncthreads();
    fetch_inputs(0);
    copies_done();

    for (int turn = 0; turn < (steps + 1) * PARTS; turn++) {
        const int s = turn / PARTS, part = turn % PARTS;
        const int next = (turn + 1) / PARTS, next_part = (turn + 1) % PARTS;
        const bool fetch = next > 0 && next <= steps;
        const uint4 *from = ring + (next & 1 ? 0 : slot) + next_part * CHUNKS + thread;
        uint4 *arriving = operands + next_part * CHUNKS + thread;
        uint4 *operand = operands + part * CHUNKS + lane;
        float4 *shares = reinterpret_cast<float4 *>(operand) + eight * ITEMS * 8 * 32;
        __syncthreads();
        if (s > 0) {
            float acc[2][NT][4];
#pragma unroll
            for (int j = 0; j < 2 * NT * 4; j++)
                acc[j / (4 * NT)][j / 4 % NT][j % 4] = 0.0f;
#pragma unroll
            for (int k = 0; k < KS; k++) {
                const uint4 *at = operand + (quarter + 4 * k) * N * 4;
                u32 high[4], low[4];
                words(high, tile[2 * k * 32]);
                words(low, tile[(2 * k + 1) * 32]);
                // Several tiles at a time, so that no instruction waits for the last.
#define EACH(COUNT) _Pragma("unroll") for (int n = g; n < g + COUNT && n < NT; n++)
#pragma unroll
                for (int g = 0; g < NT; g += 2) {
                    uint4 b[NT];
#pragma unroll
                    for (int n = g; n < g + 2 && n < NT; n++)
                        b[n] = at[8 * n * 4];
                    EACH(2) Half::multiply(acc[0][n], high, b[n].z, b[n].w);
                    EACH(2) Half::multiply(acc[1][n], below_high[k], b[n].z, b[n].w);
                    EACH(2) Half::multiply(acc[0][n], low, b[n].x, b[n].y);
                    EACH(2) Half::multiply(acc[1][n], below_low[k], b[n].x, b[n].y);
                    EACH(2) Half::multiply(acc[0][n], high, b[n].x, b[n].y);
                    EACH(2) Half::multiply(acc[1][n], below_high[k], b[n].x, b[n].y);
                }
#pragma unroll
                for (int g = 0; g < NT; g += 4) {
                    uint4 b[NT];
#pragma unroll
                    for (int n = g; n < g + 4 && n < NT; n++)
                        b[n] = at[(GROUPS * N + 8 * n) * 4];
                    EACH(4) Half::multiply(acc[1][n], own_high[k], b[n].z, b[n].w);
                    EACH(4) Half::multiply(acc[1][n], own_low[k], b[n].x, b[n].y);
                    EACH(4) Half::multiply(acc[1][n], own_high[k], b[n].x, b[n].y);
                }
#undef EACH
                // Late enough that most of what is asked for has been handed over.
                if (PARTS > 1 && k >= KS / 2)
#pragma unroll
                    for (int c = (k - KS / 2) * CHUNKS / 2; c < (k - KS / 2 + 1) * CHUNKS / 2;
                         c += WAVE_THREADS)
                        copy_fresh(arriving + c, from + c);
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                const float(&sum)[4] = acc[i / NT][i % NT];
                shares[((i * 4 + quarter) * 2 + gates) * 32] =
                    make_float4(sum[0], sum[1], sum[2], sum[3]);
            }
            __syncthreads();
        } else if (PARTS > 1 && fetch) {
#pragma unroll
            for (int c = 0; c < CHUNKS; c += WAVE_THREADS)
                copy_fresh(arriving + c, from + c);
        }
        if (PARTS > 1)
            fetch_inputs(turn + 1);
        if (item < ITEMS) {
            float z[4][2], sum[2][4] = {}, cell[2], h[2];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float4 v = shares[(item * 8 + i) * 32];
                sum[i & 1][0] += v.x;
                sum[i & 1][1] += v.y;
                sum[i & 1][2] += v.z;
                sum[i & 1][3] += v.w;
            }
#pragma unroll
            for (int q = 0; q < 8; q++)
                z[q >> 1][q & 1] = sum[q >> 2][q & 3] * (1.0f / Half::WEIGHTS);
            const auto add = [&](float4 w, float2 x) {
                const float four[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    z[q][0] = fmaf(four[q], x.x, z[q][0]);
                    z[q][1] = fmaf(four[q], x.y, z[q][1]);
                }
            };
            add(small[(second ? 0 : UNITS) + unit], make_float2(1.0f, 1.0f));
            // The inputs in plain float32: nothing is known of their size.
            const float *x = values + part * N * rows + sequence;
            if (!second)
#pragma unroll 1
                for (int f = 0; f < rows; f += 4)
#pragma unroll
                    for (int g = 0; g < 4; g++)
                        add(small[(f + g + 2) * UNITS + unit],
                            *reinterpret_cast<const float2 *>(x + (f + g) * N));
            float2 &kept = cells[part * WAVE_THREADS + thread];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                cell[j] = sigmoid(z[1][j]) * (j ? kept.y : kept.x) +
                          sigmoid(z[0][j]) * tangent(z[2][j]);
                if (second && s == 0)
                    cell[j] = 0.0f;
                h[j] = sigmoid(z[3][j]) * tangent(cell[j]);
            }
            kept = make_float2(cell[0], cell[1]);
            // The even ones of each pair carry the lap in the lowest bit of both halves.
            const u32 mask = r & 1 ? 0u : 0x10001u, lap = (s >> 1) & 1 ? mask : 0u;
            const u32 hi = (Half::pack(h[0], h[1]) & ~mask) | lap;
            const u32 lo = (Half::pack(h[0] - Half::low(hi), h[1] - Half::high(hi)) & ~mask) | lap;
            // Four threads have four units of two sequences. Each gathers half a chunk: the high or
            // the low halves of all four units, of one sequence.
            const u32 got = __shfl_xor_sync(0xffffffffu, r & 2 ? hi : lo, 8);
            const u32 a = r & 2 ? got : hi, b = r & 2 ? lo : got;
            const u32 zero = __byte_perm(a, b, 0x5410), one = __byte_perm(a, b, 0x7632);
            const u32 other = __shfl_xor_sync(0xffffffffu, r & 1 ? zero : one, 4);
            const u32 even = r & 1 ? other : zero, odd = r & 1 ? one : other;
            if (s < steps)
                publish2(out + 2 * ((s & 1 ? slot : 0) + part * CHUNKS),
                         make_uint2(__byte_perm(even, odd, 0x5410),
                                    __byte_perm(even, odd, 0x7632)));
            if (second && s > 0) {
                state[0] = h[0];
                state[WAVE_UNITS] = h[1];
            }
        }
        state += (part < PARTS - 1 ? N : batch - (PARTS - 1) * N) * WAVE_UNITS;
        if (PARTS == 1) {
            __syncthreads();
            fetch_inputs(turn + 1);
        }
        if (fetch) {
            const u32 lap = ((next - 1) >> 1) & 1;
            const auto stale = [lap](uint4 v) {
                return ((v.x ^ lap) | (v.y ^ lap) | (v.z ^ lap) | (v.w ^ lap)) & 1;
            };
            u32 late = PARTS == 1;
            if (PARTS > 1) {
                copies_done();
#pragma unroll
                for (int c = 0; c < CHUNKS; c += WAVE_THREADS)
                    late |= stale(arriving[c]);
            }
            if (late)
#pragma unroll 1
                for (int c = 0; c < CHUNKS; c += WAVE_THREADS * 2) {
                    uint4 v[2];
                    u32 waiting;
                    do {
                        waiting = 0;
#pragma unroll
                        for (int j = 0; j < 2; j++)
                            v[j] = fresh4(from + c + WAVE_THREADS * j);
#pragma unroll
                        for (int j = 0; j < 2; j++)
                            waiting |= stale(v[j]);
                    } while (waiting);
#pragma unroll
                    for (int j = 0; j < 2; j++)
                        arriving[c + WAVE_THREADS * j] = v[j];
                }
        }
        copies_done();
    }
}

extern "C" {

// TWICE: blocks that a multiprocessor runs at the same time on the way forward: while one waits for
// its group, another works. The weights of both must fit into its registers.
#define RECURRENCE(KS, NT, TWICE)                                                                  \
    __global__ void __launch_bounds__(THREADS, TWICE)                                              \
        forward_##KS##_##NT(const float *weights, const float *projected, uint4 *ring,             \
                            float *states, float4 *gates, float *cells, int keep, int steps,       \
                            int hidden, int batch) {                                               \
        forward<KS, NT>(weights, projected, ring, states, keep ? gates : nullptr, cells, steps,    \
                        hidden, batch);                                                            \
    }                                                                                              \
    __global__ void __launch_bounds__(THREADS, 1)                                                  \
        backward_##KS##_##NT(const float *weights, const float *above, const float4 *gates,        \
                             const float *cells, uint4 *ring, float *slopes, int steps,            \
                             int hidden, int batch) {                                              \
        backward<KS, NT>(weights, above, gates, cells, ring, slopes, steps, hidden, batch);        \
    }

RECURRENCE(4, 1, 1)
RECURRENCE(4, 2, 2)
RECURRENCE(4, 4, 2)
RECURRENCE(4, 8, 1)
RECURRENCE(8, 1, 1)
RECURRENCE(8, 2, 2)
RECURRENCE(8, 4, 2)
RECURRENCE(8, 8, 1)
RECURRENCE(16, 1, 1)
RECURRENCE(16, 2, 1)
RECURRENCE(16, 4, 1)
RECURRENCE(16, 8, 1)

#define MANY(NT, AHEAD)                                                                            \
    __global__ void __launch_bounds__(MANY_THREADS, 1)                                             \
        many_##NT(const float *parameters, const uint4 *packed, const float *inputs,               \
                  float2 *cells, float *states, int steps, int features, int hidden, int layers,   \
                  int batch) {                                                                     \
        many<NT, AHEAD>(parameters, packed, inputs, cells, states, steps, features, hidden,        \
                        layers, batch);                                                            \
    }

MANY(2, 2)
MANY(3, 2)
MANY(4, 2)
MANY(6, 1)
MANY(9, 1)

#define WAVE(EIGHTS, NT, PARTS)                                                                    \
    __global__ void __launch_bounds__(WAVE_THREADS, 1)                                             \
        wave_##EIGHTS(const float *parameters, const float *inputs, uint4 *ring, float *states,    \
                      int steps, int features, int batch) {                                        \
        wave<NT, PARTS>(parameters, inputs, ring, states, steps, features, batch);                 \
    }

WAVE(1, 1, 1)
WAVE(2, 1, 2)
WAVE(4, 2, 2)
WAVE(8, 4, 2)

// The weights of a layer as `many` takes them: for eight units at a time, sixteen summed indices at
// a time, what each thread hands to the matrix instruction. The first 16 rows of an eight are its
// input and forget gates, the second its new cells and output gates, so that a thread ends up with
// all four gates of a unit. `first` and `depth` are in sixteens: where these weights begin among
// all that the layer sums over, and how many those are.
__global__ void __launch_bounds__(THREADS)
    pack_weights(const float *__restrict__ weights, uint4 *__restrict__ out, int hidden, int first,
                 int depth) {
    const int i = blockIdx.x * THREADS + threadIdx.x, lane = i & 31, pair = (i >> 5) & 1;
    const int k = (i >> 6) % (hidden / 16), eight = (i >> 6) / (hidden / 16);
    if (eight >= hidden / 8)
        return;
    uint4 row[2];
    for (int r = 0; r < 2; r++) {
        const float *w = weights +
                         (size_t)((2 * pair + r) * hidden + 8 * eight + lane / 4) * hidden +
                         16 * k + 4 * (lane & 3);
        row[r] = split<Half>(Half::WEIGHTS * w[0], Half::WEIGHTS * w[1], Half::WEIGHTS * w[2],
                             Half::WEIGHTS * w[3]);
    }
    uint4 *to = out + ((size_t)(eight * depth + first + k) * 4 + 2 * pair) * 32 + lane;
    to[0] = make_uint4(row[0].x, row[1].x, row[0].y, row[1].y);
    to[32] = make_uint4(row[0].z, row[1].z, row[0].w, row[1].w);
}

// What a layer of states adds to the gates of the layer above: states · weightsᵀ + bias.
__global__ void __launch_bounds__(THREADS, 1)
    project(const float *states, const float *weights, const float *bias, float *out, int m, int n,
            int k) {
    product<Half, true, true>(states, k, weights, k, bias, out, m, n, k, k);
}

// The gradients of the layer below: slopes · weights.
__global__ void __launch_bounds__(THREADS, 1)
    project_back(const float *slopes, const float *weights, float *out, int m, int n, int k) {
    product<Brain, true, false>(slopes, k, weights, n, nullptr, out, m, n, k, k);
}

// The gradients of weights, in parts: slopesᵀ · states.
__global__ void __launch_bounds__(THREADS, 1)
    weight_gradient(const float *slopes, const float *states, float *out, int m, int n, int k,
                    int part) {
    product<Brain, false, false>(slopes, m, states, n, nullptr, out, m, n, k, part);
}

// The first layer's inputs times their weights plus the bias, in plain float32: nothing is known
// of the size of raw inputs. A block does 16 rows of 256 columns.
__global__ void __launch_bounds__(THREADS)
    project_inputs(const float *__restrict__ inputs, const float *__restrict__ weights,
                   const float *__restrict__ bias, float *__restrict__ out, int rows, int columns,
                   int features) {
    SHARED(float, tile);
    const int first = blockIdx.x * 16, column = blockIdx.y * THREADS + threadIdx.x;
    float acc[16];
#pragma unroll
    for (int r = 0; r < 16; r++)
        acc[r] = column < columns ? bias[column] : 0.0f;
    for (int at = 0; at < features; at += 32) {
        const int count = features - at < 32 ? features - at : 32;
        __syncthreads();
        for (int i = threadIdx.x; i < 16 * count; i += THREADS) {
            const int row = first + i / count;
            tile[(i / count) * 32 + i % count] =
                row < rows ? inputs[(size_t)row * features + at + i % count] : 0.0f;
        }
        __syncthreads();
        if (column < columns)
            for (int f = 0; f < count; f++) {
                const float w = weights[(size_t)column * features + at + f];
#pragma unroll
                for (int r = 0; r < 16; r++)
                    acc[r] = fmaf(w, tile[r * 32 + f], acc[r]);
            }
    }
    if (column < columns)
#pragma unroll
        for (int r = 0; r < 16; r++)
            if (first + r < rows)
                out[(size_t)(first + r) * columns + column] = acc[r];
}

// Sums of rows, in parts: out[part][few + 1][wide] = sum over its rows of few[row] ⊗ wide[row],
// and last of wide[row] alone. Eight of the few at a time.
__global__ void __launch_bounds__(THREADS)
    narrow_gradient(const float *__restrict__ few, const float *__restrict__ wide,
                    float *__restrict__ out, int rows, int few_count, int wide_count, int part) {
    const int column = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * 8;
    const int from = blockIdx.z * part, to = from + part < rows ? from + part : rows;
    if (column >= wide_count)
        return;
    float acc[8];
#pragma unroll
    for (int f = 0; f < 8; f++)
        acc[f] = 0.0f;
#pragma unroll 8
    for (int row = from; row < to; row++) {
        const float w = wide[(size_t)row * wide_count + column];
        const float *x = few + (size_t)row * few_count + first;
#pragma unroll
        for (int f = 0; f < 8; f++)
            if (first + f < few_count)
                acc[f] = fmaf(w, x[f], acc[f]);
            else if (first + f == few_count)
                acc[f] += w;
    }
#pragma unroll
    for (int f = 0; f < 8; f++)
        if (first + f <= few_count)
            out[((size_t)blockIdx.z * (few_count + 1) + first + f) * wide_count + column] = acc[f];
}

// Adds up parts, always in the same order: to[r * row_step + c * column_step] = the sum of
// parts[i][offset + r * columns + c], plus what is there if `add`.
__global__ void __launch_bounds__(THREADS)
    sum_parts(const float *__restrict__ parts, int count, int stride, int offset, int rows,
              int columns, float *__restrict__ to, int row_step, int column_step, int add) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows * columns)
        return;
    float sum = 0.0f;
#pragma unroll 16
    for (int part = 0; part < count; part++)
        sum += parts[(size_t)part * stride + offset + i];
    float *place = to + (size_t)(i / columns) * row_step + (size_t)(i % columns) * column_step;
    *place = add ? *place + sum : sum;
}

// Where the weights and the bias of an output lie: the classes' weights and biases, then those
// of each single head.
__device__ __forceinline__ size_t head_weights(int output, int classes, int hidden) {
    return output < classes ? (size_t)output * hidden
                            : (size_t)classes * (hidden + 1) + (size_t)(output - classes) * (hidden + 1);
}

__device__ __forceinline__ size_t head_bias(int output, int classes, int hidden) {
    return output < classes ? (size_t)classes * hidden + output
                            : head_weights(output, classes, hidden) + hidden;
}

// The logits of every row and its prediction, the first of the largest. A warp does four rows; as it
// adds up, each eight lanes end up with the sum of one.
__global__ void __launch_bounds__(THREADS)
    logits(const float *__restrict__ states, const float *__restrict__ heads, float *__restrict__ out,
           int *__restrict__ predictions, int rows, int hidden, int classes, int outputs) {
    const int first = 4 * (blockIdx.x * (THREADS / 32) + threadIdx.x / 32), lane = threadIdx.x & 31;
    if (first >= rows)
        return;
    const int row = first + lane / 8;
    float best = 0.0f;
    int prediction = 0;
    float x[4][16];
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int i = 0; i < 16; i++)
            x[r][i] = lane + 32 * i < hidden && first + r < rows
                          ? states[(size_t)(first + r) * hidden + lane + 32 * i]
                          : 0.0f;
    for (int o = 0; o < outputs; o++) {
        const float *w = heads + head_weights(o, classes, hidden);
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < 16; i++)
            if (32 * i < hidden) {
                const float weight = w[lane + 32 * i];
#pragma unroll
                for (int r = 0; r < 4; r++)
                    sums[r] = fmaf(weight, x[r][i], sums[r]);
            }
        const bool later = lane & 16, odd = lane & 8;
        const float a = (later ? sums[2] : sums[0]) +
                        __shfl_xor_sync(0xffffffffu, later ? sums[0] : sums[2], 16);
        const float b = (later ? sums[3] : sums[1]) +
                        __shfl_xor_sync(0xffffffffu, later ? sums[1] : sums[3], 16);
        float sum = (odd ? b : a) + __shfl_xor_sync(0xffffffffu, odd ? a : b, 8);
        for (int other = 4; other > 0; other /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, other);
        sum += heads[head_bias(o, classes, hidden)];
        if (o < classes && (o == 0 || sum > best)) {
            best = sum;
            prediction = o;
        }
        if (lane % 8 == 0 && row < rows)
            out[(size_t)row * outputs + o] = sum;
    }
    if (lane % 8 == 0 && row < rows)
        predictions[row] = prediction;
}

__device__ __forceinline__ float binary_loss(float logit, float target) {
    return fmaxf(logit, 0.0f) - logit * target + log1pf(expf(-fabsf(logit)));
}

// The loss of every row; with `slope`, logits are replaced by their gradients. No gradient flows
// through the targets.
__global__ void __launch_bounds__(THREADS)
    losses(float *__restrict__ logits, const int *__restrict__ predictions,
           const int *__restrict__ lengths, const int *__restrict__ labels, float *__restrict__ loss,
           int steps, int batch, int classes, int outputs, float gamma, float weight, int slope) {
    const int row = blockIdx.x * THREADS + threadIdx.x;
    if (row >= steps * batch)
        return;
    const int t = row / batch, b = row % batch, length = lengths[b], label = labels[b];
    float *z = logits + (size_t)row * outputs;
    if (t >= length) {
        loss[row] = 0.0f;
        if (slope)
            for (int o = 0; o < outputs; o++)
                z[o] = 0.0f;
        return;
    }
    const float right = predictions[row] == label ? 1.0f : 0.0f;
    const float full = predictions[(size_t)(length - 1) * batch + b] == label ? 1.0f : 0.0f;
    const float largest = z[predictions[row]];
    float sum = 0.0f;
    for (int k = 0; k < classes; k++)
        sum += expf(z[k] - largest);
    float total = 0.0f;
    for (int o = classes; o < outputs; o++) {
        const float target = o == classes ? right : full * (1.0f - right);
        total += binary_loss(z[o], target);
        if (slope)
            z[o] = (1.0f / (1.0f + expf(-z[o])) - target) * gamma * weight;
    }
    loss[row] = gamma * total + (logf(sum) + largest - z[label]);
    if (slope)
        for (int k = 0; k < classes; k++)
            z[k] = (expf(z[k] - largest) / sum - (k == label ? 1.0f : 0.0f)) * weight;
}

// Adds the losses of all rows and the right full predictions to `total`, always in the same
// order: one block.
__global__ void __launch_bounds__(THREADS)
    sum_losses(const float *__restrict__ loss, const int *__restrict__ predictions,
               const int *__restrict__ lengths, const int *__restrict__ labels, double *total,
               int steps, int batch) {
    SHARED(double, sums);
    double sum = 0.0, right = 0.0;
    for (int row = threadIdx.x; row < steps * batch; row += THREADS)
        sum += loss[row];
    for (int b = threadIdx.x; b < batch; b += THREADS)
        if (lengths[b] > 0 && predictions[(size_t)(lengths[b] - 1) * batch + b] == labels[b])
            right += 1.0;
    sums[threadIdx.x] = sum;
    sums[THREADS + threadIdx.x] = right;
    for (int other = THREADS / 2; other > 0; other /= 2) {
        __syncthreads();
        if (threadIdx.x < other) {
            sums[threadIdx.x] += sums[threadIdx.x + other];
            sums[THREADS + threadIdx.x] += sums[THREADS + threadIdx.x + other];
        }
    }
    if (threadIdx.x == 0) {
        total[0] += sums[0];
        total[1] += sums[THREADS];
    }
}

// The gradients of the top layer's states: slopes of the logits times the heads' weights. A block
// does eight rows.
__global__ void __launch_bounds__(THREADS)
    from_heads(const float *__restrict__ slopes, const float *__restrict__ heads,
               float *__restrict__ out, int rows, int hidden, int classes, int outputs) {
    const int first = blockIdx.x * 8;
    for (int unit = threadIdx.x; unit < hidden; unit += THREADS) {
        float sum[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        for (int o = 0; o < outputs; o++) {
            const float w = heads[head_weights(o, classes, hidden) + unit];
#pragma unroll
            for (int r = 0; r < 8; r++)
                if (first + r < rows)
                    sum[r] = fmaf(slopes[(size_t)(first + r) * outputs + o], w, sum[r]);
        }
#pragma unroll
        for (int r = 0; r < 8; r++)
            if (first + r < rows)
                out[(size_t)(first + r) * hidden + unit] = sum[r];
    }
}

// Adam, as PyTorch computes it. A merged bias stands for two and moves twice as far.
__global__ void __launch_bounds__(THREADS)
    adam(float *__restrict__ parameters, float *__restrict__ first, float *__restrict__ second,
         const float *__restrict__ gradients, const float *__restrict__ factors, int count, float rate,
         float scale) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const float g = gradients[i];
    const float m = first[i] + (1.0f - 0.9f) * (g - first[i]);
    const float v = 0.999f * second[i] + (1.0f - 0.999f) * g * g;
    first[i] = m;
    second[i] = v;
    parameters[i] -= factors[i] * rate * m / (sqrtf(v) * scale + 1e-8f);
}

// From logits to what is said about every prefix, sequence by sequence; zero beyond the end.
__global__ void __launch_bounds__(THREADS)
    scores(const float *__restrict__ logits, const int *__restrict__ lengths,
           const int *__restrict__ predictions, float *__restrict__ probabilities,
           int *__restrict__ predicted, float *__restrict__ confidence, float *__restrict__ gap,
           int steps, int batch, int classes, int outputs, int with_gap) {
    const int cell = blockIdx.x * THREADS + threadIdx.x;
    if (cell >= steps * batch)
        return;
    const int b = cell / steps, t = cell % steps, row = t * batch + b;
    const float *z = logits + (size_t)row * outputs;
    float *p = probabilities + (size_t)cell * classes;
    if (t >= lengths[b]) {
        for (int k = 0; k < classes; k++)
            p[k] = 0.0f;
        predicted[cell] = 0;
        confidence[cell] = 0.0f;
        if (with_gap)
            gap[cell] = 0.0f;
        return;
    }
    const float largest = z[predictions[row]];
    float sum = 0.0f;
    for (int k = 0; k < classes; k++)
        sum += expf(z[k] - largest);
    for (int k = 0; k < classes; k++)
        p[k] = expf(z[k] - largest) / sum;
    predicted[cell] = predictions[row];
    confidence[cell] = 1.0f / (1.0f + expf(-z[classes]));
    if (with_gap)
        gap[cell] = 1.0f / (1.0f + expf(-z[classes + 1]));
}
}
