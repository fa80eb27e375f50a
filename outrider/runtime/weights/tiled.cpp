// y = x W^T + b in bfloat16 on AVX-512 with its bfloat16 dot product, for few rows and for many.
//
// Weights lie in tiles of 16 outputs: for each pair of inputs 16 pairs of bfloat16, one 64-byte line. A row's sum for
// an output runs over the pairs of inputs in their order and shares no accumulator with another row, so its bits do
// not depend on the number of rows or threads. All inputs of a block of rows are summed in registers: a tile is read
// from memory once for every kRows rows, and no row is padded.

#include <immintrin.h>

#include <cstdint>
#include <cstring>

// Of the OpenMP library that the process has loaded already: threads of a second one would fight with its threads.
extern "C" {
void GOMP_parallel(void (*work)(void*), void* context, unsigned num_threads, unsigned flags);
int omp_get_thread_num();
int omp_get_num_threads();
}

namespace {

constexpr int64_t kTile = 16;
// Two tiles and fourteen rows are 28 sums and 2 lines of weights in 32 registers.
constexpr int kTiles = 2;
constexpr int kRows = 14;

struct Product {
    const uint16_t* rows;     // bfloat16 [num_rows][inputs]
    const uint16_t* weights;  // bfloat16 [outputs / 16][inputs / 2][16][2]
    const float* bias;        // [outputs] or null
    uint16_t* results;        // bfloat16 [num_rows][outputs]
    int64_t num_rows;
    int64_t inputs;
    int64_t outputs;
};

template <int kNumRows, int kNumTiles>
void block(const Product& product, int64_t tile, int64_t row) {
    const uint16_t* rows = product.rows + row * product.inputs;
    const uint16_t* weights = product.weights + tile * kTile * product.inputs;
    __m512 sums[kNumRows][kNumTiles];
    for (int t = 0; t < kNumTiles; ++t) {
        const __m512 start =
            product.bias ? _mm512_loadu_ps(product.bias + (tile + t) * kTile) : _mm512_setzero_ps();
        for (int r = 0; r < kNumRows; ++r) sums[r][t] = start;
    }
    for (int64_t input = 0; input < product.inputs; input += 2) {
        __m512bh lines[kNumTiles];
        for (int t = 0; t < kNumTiles; ++t) {
            const uint16_t* line = weights + t * kTile * product.inputs + input * kTile;
            lines[t] = (__m512bh)_mm512_loadu_si512(line);
            _mm_prefetch(reinterpret_cast<const char*>(line) + 2048, _MM_HINT_T0);
        }
        for (int r = 0; r < kNumRows; ++r) {
            int32_t pair;
            std::memcpy(&pair, rows + r * product.inputs + input, 4);
            const __m512bh both = (__m512bh)_mm512_set1_epi32(pair);
            for (int t = 0; t < kNumTiles; ++t) sums[r][t] = _mm512_dpbf16_ps(sums[r][t], lines[t], both);
        }
    }
    for (int r = 0; r < kNumRows; ++r) {
        for (int t = 0; t < kNumTiles; ++t) {
            const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(sums[r][t]);
            uint16_t* to = product.results + (row + r) * product.outputs + (tile + t) * kTile;
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
        }
    }
}

// The last rows, as many as `num_rows` says, fewer than `kNumRows`.
template <int kNumRows, int kNumTiles>
void remainder(const Product& product, int64_t tile, int64_t row, int64_t num_rows) {
    if constexpr (kNumRows > 1) {
        if (num_rows == kNumRows - 1) {
            block<kNumRows - 1, kNumTiles>(product, tile, row);
        } else {
            remainder<kNumRows - 1, kNumTiles>(product, tile, row, num_rows);
        }
    }
}

template <int kNumTiles>
void columns(const Product& product, int64_t tile) {
    int64_t row = 0;
    for (; product.num_rows - row >= kRows; row += kRows) block<kRows, kNumTiles>(product, tile, row);
    remainder<kRows, kNumTiles>(product, tile, row, product.num_rows - row);
}

void share(void* context) {
    const Product& product = *static_cast<const Product*>(context);
    const int64_t num_tiles = product.outputs / kTile;
    const int64_t num_groups = (num_tiles + kTiles - 1) / kTiles;
    const int64_t member = omp_get_thread_num(), members = omp_get_num_threads();
    for (int64_t group = num_groups * member / members; group < num_groups * (member + 1) / members; ++group) {
        const int64_t tile = group * kTiles;
        if (num_tiles - tile >= kTiles) {
            columns<kTiles>(product, tile);
        } else {
            columns<1>(product, tile);
        }
    }
}

}  // namespace

extern "C" void outrider_tiled_product(const uint16_t* rows, const uint16_t* weights, const float* bias,
                                       uint16_t* results, int64_t num_rows, int64_t inputs, int64_t outputs) {
    Product product{rows, weights, bias, results, num_rows, inputs, outputs};
    GOMP_parallel(share, &product, 0, 0);
}
