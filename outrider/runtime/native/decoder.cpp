// One forward of a Llama-family decoder with 4-bit weights, on AVX-512 with VNNI.
//
// A small model that drafts one token at a time spends more time on starting operations than on arithmetic when
// each is a call of its own. Here a whole forward is one call: threads walk through the layers together and meet at
// barriers.
//
// Rows never share an accumulator, and a row's sums run in one fixed order, so a row's result is the same to the bit
// for any number of rows and of threads.
//
// Weights lie in tiles of 16 outputs. For each group of 32 inputs a tile holds 256 bytes of levels and 64 bytes of
// scales: byte 4 * output + i of the 64-byte line p has input 8 p + i in its low and input 8 p + 4 + i in its high
// half, which is how the dot-product instruction wants four inputs of sixteen outputs; then 16 float16 scales and 16
// float16 minima. A weight is level * scale + minimum. Inputs are rounded to 8 bits with one scale per row and group.

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int kTile = 16;
constexpr int kGroup = 32;
constexpr int kLines = kGroup / 8;
constexpr int kGroupBytes = kLines * 64 + 64;
constexpr int kRowBlock = 4;
// Inputs that are all smaller count as 0.
constexpr float kSmallest = 1e-30f;

struct Linear {
    const uint8_t* weights;  // [outputs / 16][inputs / 32][kGroupBytes]
    const float* bias;       // [outputs] or null
    int64_t inputs;
    int64_t outputs;
};

struct Layer {
    const float* attention_norm;  // [hidden]
    const float* mlp_norm;
    Linear qkv;      // queries, keys, values
    Linear out;
    Linear gate_up;  // gates, then ups
    Linear down;
    uint16_t* keys;  // bfloat16 [slots][kv heads][head_dim]
    uint16_t* values;
};

struct Shape {
    int64_t hidden;
    int64_t num_heads;
    int64_t num_kv_heads;
    int64_t head_dim;
    int64_t intermediate;
    int64_t num_layers;
    float eps;
    float scale;
};

// What one forward works on. Row r sees the keys key_slots[key_starts[r]] and on, position[r] + 1 of them.
struct Step {
    int64_t num_rows;
    int64_t num_wanted;
    float* hidden;              // [num_rows][hidden], the embeddings; overwritten
    const float* cos;           // [num_rows][head_dim]
    const float* sin;
    const int64_t* positions;   // [num_rows]
    const int64_t* slots;       // [num_rows], where a row's key and value go
    const int64_t* key_slots;
    const int64_t* key_starts;  // [num_rows]
    const int64_t* wanted;      // [num_wanted]
    float* logits;              // [num_wanted][vocabulary]
    uint8_t* finite;            // [num_rows]
};

// Rows as the products read them.
struct Quantized {
    std::vector<int8_t> levels;  // [rows][inputs]
    std::vector<float> scales;   // [rows][inputs / 32]
    std::vector<float> sums;     // [rows][inputs / 32], of levels times their scale

    void fit(int64_t rows, int64_t inputs) {
        if (levels.size() < size_t(rows * inputs)) levels.resize(rows * inputs);
        if (scales.size() < size_t(rows * inputs / kGroup)) {
            scales.resize(rows * inputs / kGroup);
            sums.resize(rows * inputs / kGroup);
        }
    }
};

inline float from_bfloat16(uint16_t half) {
    uint32_t bits = uint32_t(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline __m512 load_bfloat16(const uint16_t* from) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// To nearest, ties to even. What is not finite is stored as 0, so that a masked key can never spread it.
inline uint16_t to_bfloat16(float value) {
    if (!std::isfinite(value)) return 0;
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (rounded & 0x7f80) == 0x7f80 ? 0 : uint16_t(rounded);
}

// e^x by 2^n * p(f) with |f| <= 0.5, relative error below 1e-6.
inline __m512 exponential(__m512 x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(-87.0f));
    x = _mm512_min_ps(x, _mm512_set1_ps(88.0f));
    const __m512 y = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f));
    const __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 f = _mm512_sub_ps(y, n);
    __m512 p = _mm512_set1_ps(1.5403530393381609e-4f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.3333558146428443e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.6181291076284772e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5504108664821580e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022650695910072e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718055994531e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

void quantize_group(const float* from, int8_t* levels, float* scale, float* sum) {
    __m512 largest = _mm512_setzero_ps();
    __mmask16 no_number = 0;
    for (int i = 0; i < kGroup; i += 16) {
        const __m512 x = _mm512_loadu_ps(from + i);
        no_number |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        largest = _mm512_max_ps(largest, _mm512_abs_ps(x));
    }
    // A maximum may lose a NaN; it must reach the row's results.
    const float limit = no_number ? NAN : _mm512_reduce_max_ps(largest);
    const float factor = limit > kSmallest ? 127.0f / limit : 0.0f;
    __m512i total = _mm512_setzero_si512();
    for (int i = 0; i < kGroup; i += 16) {
        const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from + i), _mm512_set1_ps(factor)));
        total = _mm512_add_epi32(total, rounded);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(levels + i), _mm512_cvtsepi32_epi8(rounded));
    }
    *scale = limit / 127.0f;
    *sum = float(_mm512_reduce_add_epi32(total)) * *scale;
}

// The products of one tile with up to kRowBlock rows, into out[row * stride].
template <int kRows>
void tile_product(const uint8_t* tile, int64_t groups, const int8_t* levels, const float* scales, const float* sums,
                  const float* bias, float* out, int64_t stride) {
    const __m512i low_half = _mm512_set1_epi8(0x0f);
    const int64_t inputs = groups * kGroup;
    __m512 result[kRows];
    for (int r = 0; r < kRows; ++r) result[r] = bias ? _mm512_loadu_ps(bias) : _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; ++g, tile += kGroupBytes) {
        __m512i low[kRows], high[kRows];
        for (int r = 0; r < kRows; ++r) low[r] = high[r] = _mm512_setzero_si512();
        const int8_t* from = levels + g * kGroup;
        for (int line = 0; line < kLines; ++line) {
            const __m512i both = _mm512_loadu_si512(tile + line * 64);
            _mm_prefetch(reinterpret_cast<const char*>(tile + line * 64 + 8 * kGroupBytes), _MM_HINT_T0);
            const __m512i first = _mm512_and_si512(both, low_half);
            const __m512i second = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_half);
            for (int r = 0; r < kRows; ++r) {
                int32_t quads[2];
                std::memcpy(quads, from + r * inputs + line * 8, 8);
                low[r] = _mm512_dpbusd_epi32(low[r], first, _mm512_set1_epi32(quads[0]));
                high[r] = _mm512_dpbusd_epi32(high[r], second, _mm512_set1_epi32(quads[1]));
            }
        }
        const __m256i* halves = reinterpret_cast<const __m256i*>(tile + kLines * 64);
        const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256(halves));
        const __m512 minimum = _mm512_cvtph_ps(_mm256_loadu_si256(halves + 1));
        for (int r = 0; r < kRows; ++r) {
            const __m512 dot = _mm512_cvtepi32_ps(_mm512_add_epi32(low[r], high[r]));
            const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(scales[r * groups + g]));
            result[r] = _mm512_fmadd_ps(dot, factor, result[r]);
            result[r] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(sums[r * groups + g]), result[r]);
        }
    }
    for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(out + r * stride, result[r]);
}

void tile_rows(const Linear& linear, int64_t tile, const Quantized& rows, int64_t num_rows, float* out,
               int64_t stride) {
    const int64_t groups = linear.inputs / kGroup;
    const uint8_t* weights = linear.weights + tile * groups * kGroupBytes;
    const float* bias = linear.bias ? linear.bias + tile * kTile : nullptr;
    for (int64_t r = 0; r < num_rows; r += kRowBlock) {
        const int8_t* levels = rows.levels.data() + r * linear.inputs;
        const float* scales = rows.scales.data() + r * groups;
        const float* sums = rows.sums.data() + r * groups;
        float* to = out + r * stride;
        switch (num_rows - r) {
            case 1: tile_product<1>(weights, groups, levels, scales, sums, bias, to, stride); break;
            case 2: tile_product<2>(weights, groups, levels, scales, sums, bias, to, stride); break;
            case 3: tile_product<3>(weights, groups, levels, scales, sums, bias, to, stride); break;
            default: tile_product<4>(weights, groups, levels, scales, sums, bias, to, stride);
        }
    }
}

inline void pause(int turns) {
    for (int i = 0; i < turns; ++i) _mm_pause();
}

// Threads that run one function together. Between calls they watch for a moment and then sleep: the next token
// follows soon, and other processes want the cores when it does not.
class Team {
  public:
    explicit Team(int size) : size_(size) {
        for (int i = 1; i < size; ++i) {
            threads_.emplace_back([this, i] { serve(i); });
        }
    }

    ~Team() {
        stopping_.store(true);
        call_.fetch_add(1);
        call_.notify_all();
        for (auto& thread : threads_) thread.join();
    }

    int size() const { return size_; }

    template <typename Work>
    void run(Work& work) {
        work_ = [](void* context, int member) { (*static_cast<Work*>(context))(member); };
        context_ = &work;
        call_.fetch_add(1);
        call_.notify_all();
        work(0);
        meet();
    }

    // Nobody goes on before all have come.
    void meet() {
        const int64_t turn = turn_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            turn_.store(turn + 1, std::memory_order_release);
            return;
        }
        for (int64_t watched = 0; turn_.load(std::memory_order_acquire) == turn; ++watched) {
            if (watched < kWatches) {
                pause(1);
            } else {
                std::this_thread::yield();
            }
        }
    }

  private:
    static constexpr int64_t kWatches = 4000;

    void serve(int member) {
        for (int64_t seen = 0;;) {
            for (int64_t watched = 0; call_.load(std::memory_order_acquire) == seen; ++watched) {
                if (watched < kWatches) {
                    pause(1);
                } else {
                    call_.wait(seen);
                }
            }
            ++seen;
            if (stopping_.load()) return;
            work_(context_, member);
            meet();
        }
    }

    const int size_;
    std::vector<std::thread> threads_;
    std::atomic<int64_t> call_{0};
    std::atomic<int64_t> turn_{0};
    std::atomic<int> arrived_{0};
    std::atomic<bool> stopping_{false};
    void (*work_)(void*, int) = nullptr;
    void* context_ = nullptr;
};

class Decoder {
  public:
    Decoder(const Shape& shape, const Layer* layers, const float* norm, const Linear& head, int num_threads)
        : shape_(shape), layers_(layers, layers + shape.num_layers), norm_(norm), head_(head), team_(num_threads) {
        scores_.resize(num_threads);
        scratch_.resize(num_threads);
    }

    void forward(const Step& step) {
        const int64_t rows = step.num_rows;
        queries_.resize(rows * layers_[0].qkv.outputs);
        attended_.resize(rows * shape_.num_heads * shape_.head_dim);
        gates_.resize(rows * 2 * shape_.intermediate);
        quantized_.fit(rows, std::max({shape_.hidden, shape_.intermediate, shape_.num_heads * shape_.head_dim}));
        const int64_t context = rows ? *std::max_element(step.positions, step.positions + rows) + 1 : 0;
        for (auto& scores : scores_) scores.resize(std::max<size_t>(scores.size(), context + kTile));
        const size_t wanted = std::max(shape_.hidden, rows * 2 * kTile);
        for (auto& scratch : scratch_) scratch.resize(std::max(scratch.size(), wanted));
        auto work = [&](int member) { walk(step, member); };
        team_.run(work);
    }

  private:
    void walk(const Step& step, int member) {
        const int64_t rows = step.num_rows;
        const int64_t width = shape_.num_heads * shape_.head_dim;
        for (int64_t number = 0; number < shape_.num_layers; ++number) {
            const Layer& layer = layers_[number];
            normalize(step.hidden, layer.attention_norm, rows, nullptr, member);
            team_.meet();
            product(layer.qkv, rows, queries_.data(), member);
            team_.meet();
            rotate_and_store(step, layer, number + 1 == shape_.num_layers, member);
            team_.meet();
            attend(step, layer, member);
            team_.meet();
            quantize(attended_.data(), width, rows, member);
            team_.meet();
            add_product(layer.out, rows, step.hidden, member);
            team_.meet();
            normalize(step.hidden, layer.mlp_norm, rows, nullptr, member);
            team_.meet();
            gate(layer.gate_up, rows, member);
            team_.meet();
            quantize(gates_.data(), shape_.intermediate, rows, member);
            team_.meet();
            add_product(layer.down, rows, step.hidden, member);
            team_.meet();
        }
        if (step.num_wanted == 0) return;
        normalize(step.hidden, norm_, step.num_wanted, step.wanted, member);
        team_.meet();
        product(head_, step.num_wanted, step.logits, member);
    }

    // This member's share of `count` equal pieces.
    std::pair<int64_t, int64_t> share(int64_t count, int member) const {
        return {count * member / team_.size(), count * (member + 1) / team_.size()};
    }

    void normalize(const float* from, const float* weight, int64_t rows, const int64_t* chosen, int member) {
        const auto [first, last] = share(rows, member);
        const int64_t hidden = shape_.hidden;
        float* normal = scratch_[member].data();
        for (int64_t r = first; r < last; ++r) {
            const float* row = from + (chosen ? chosen[r] : r) * hidden;
            __m512 squares = _mm512_setzero_ps();
            for (int64_t i = 0; i < hidden; i += 16) {
                const __m512 x = _mm512_loadu_ps(row + i);
                squares = _mm512_fmadd_ps(x, x, squares);
            }
            const float scale = 1.0f / std::sqrt(_mm512_reduce_add_ps(squares) / float(hidden) + shape_.eps);
            for (int64_t i = 0; i < hidden; i += 16) {
                const __m512 x = _mm512_mul_ps(_mm512_loadu_ps(row + i), _mm512_set1_ps(scale));
                _mm512_storeu_ps(normal + i, _mm512_mul_ps(x, _mm512_loadu_ps(weight + i)));
            }
            quantize_row(normal, r, hidden, 0, hidden / kGroup);
        }
    }

    void quantize(const float* from, int64_t width, int64_t rows, int member) {
        const int64_t groups = width / kGroup;
        const auto [first, last] = share(rows * groups, member);
        for (int64_t piece = first; piece < last; ++piece) {
            const int64_t r = piece / groups, g = piece % groups;
            quantize_row(from + r * width, r, width, g, g + 1);
        }
    }

    void quantize_row(const float* row, int64_t r, int64_t width, int64_t first, int64_t last) {
        const int64_t groups = width / kGroup;
        for (int64_t g = first; g < last; ++g) {
            quantize_group(row + g * kGroup, quantized_.levels.data() + r * width + g * kGroup,
                           quantized_.scales.data() + r * groups + g, quantized_.sums.data() + r * groups + g);
        }
    }

    void product(const Linear& linear, int64_t rows, float* out, int member) {
        const auto [first, last] = share(linear.outputs / kTile, member);
        for (int64_t tile = first; tile < last; ++tile) {
            tile_rows(linear, tile, quantized_, rows, out + tile * kTile, linear.outputs);
        }
    }

    void add_product(const Linear& linear, int64_t rows, float* sum, int member) {
        const auto [first, last] = share(linear.outputs / kTile, member);
        float* column = scratch_[member].data();
        for (int64_t tile = first; tile < last; ++tile) {
            tile_rows(linear, tile, quantized_, rows, column, kTile);
            for (int64_t r = 0; r < rows; ++r) {
                float* to = sum + r * linear.outputs + tile * kTile;
                _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), _mm512_loadu_ps(column + r * kTile)));
            }
        }
    }

    // silu(gate) * up, into the first half's place of a row of its own width.
    void gate(const Linear& linear, int64_t rows, int member) {
        const int64_t tiles = shape_.intermediate / kTile;
        const auto [first, last] = share(tiles, member);
        float* gates = scratch_[member].data();
        float* ups = gates + rows * kTile;
        for (int64_t tile = first; tile < last; ++tile) {
            tile_rows(linear, tile, quantized_, rows, gates, kTile);
            tile_rows(linear, tile + tiles, quantized_, rows, ups, kTile);
            for (int64_t r = 0; r < rows; ++r) {
                const __m512 x = _mm512_loadu_ps(gates + r * kTile);
                const __m512 one = _mm512_set1_ps(1.0f);
                const __m512 bottom = _mm512_add_ps(one, exponential(_mm512_sub_ps(_mm512_setzero_ps(), x)));
                const __m512 silu = _mm512_div_ps(x, bottom);
                _mm512_storeu_ps(gates_.data() + r * shape_.intermediate + tile * kTile,
                                 _mm512_mul_ps(silu, _mm512_loadu_ps(ups + r * kTile)));
            }
        }
    }

    void rotate_and_store(const Step& step, const Layer& layer, bool is_last, int member) {
        const auto [first, last] = share(step.num_rows, member);
        const int64_t dim = shape_.head_dim, half = dim / 2, kv_width = shape_.num_kv_heads * dim;
        for (int64_t r = first; r < last; ++r) {
            float* row = queries_.data() + r * layer.qkv.outputs;
            const float* cos = step.cos + r * dim;
            const float* sin = step.sin + r * dim;
            for (int64_t head = 0; head < shape_.num_heads + shape_.num_kv_heads; ++head) {
                float* x = row + head * dim;
                for (int64_t i = 0; i < half; ++i) {
                    const float a = x[i], b = x[i + half];
                    x[i] = a * cos[i] - b * sin[i];
                    x[i + half] = b * cos[i + half] + a * sin[i + half];
                }
            }
            const float* keys = row + shape_.num_heads * dim;
            const float* values = keys + kv_width;
            uint16_t* stored_keys = layer.keys + step.slots[r] * kv_width;
            uint16_t* stored_values = layer.values + step.slots[r] * kv_width;
            bool finite = true;
            for (int64_t i = 0; i < kv_width; ++i) {
                stored_keys[i] = to_bfloat16(keys[i]);
                stored_values[i] = to_bfloat16(values[i]);
                finite = finite && std::isfinite(keys[i]) && std::isfinite(values[i]);
            }
            if (is_last) step.finite[r] = finite;
        }
    }

    void attend(const Step& step, const Layer& layer, int member) {
        const int64_t heads = shape_.num_heads, dim = shape_.head_dim;
        const int64_t per_group = heads / shape_.num_kv_heads, kv_width = shape_.num_kv_heads * dim;
        const auto [first, last] = share(step.num_rows * heads, member);
        float* scores = scores_[member].data();
        for (int64_t piece = first; piece < last; ++piece) {
            const int64_t r = piece / heads, head = piece % heads, offset = head / per_group * dim;
            const int64_t count = step.positions[r] + 1;
            const int64_t* slots = step.key_slots + step.key_starts[r];
            const float* query = queries_.data() + r * layer.qkv.outputs + head * dim;
            float largest = -INFINITY;
            for (int64_t k = 0; k < count; ++k) {
                const uint16_t* key = layer.keys + slots[k] * kv_width + offset;
                __m512 sum = _mm512_setzero_ps();
                for (int64_t i = 0; i < dim; i += 16) {
                    sum = _mm512_fmadd_ps(_mm512_loadu_ps(query + i), load_bfloat16(key + i), sum);
                }
                scores[k] = _mm512_reduce_add_ps(sum) * shape_.scale;
                largest = std::max(largest, scores[k]);
            }
            for (int64_t k = count; k < count + 16; ++k) scores[k] = -INFINITY;
            __m512 sum = _mm512_setzero_ps();
            for (int64_t k = 0; k < count; k += 16) {
                const __mmask16 present = count - k >= 16 ? 0xffff : __mmask16((1u << (count - k)) - 1);
                const __m512 x = _mm512_sub_ps(_mm512_loadu_ps(scores + k), _mm512_set1_ps(largest));
                const __m512 weight = _mm512_maskz_mov_ps(present, exponential(x));
                _mm512_storeu_ps(scores + k, weight);
                sum = _mm512_add_ps(sum, weight);
            }
            const float inverse = 1.0f / _mm512_reduce_add_ps(sum);
            float* out = attended_.data() + r * heads * dim + head * dim;
            for (int64_t i = 0; i < dim; i += 16) {
                __m512 mixed = _mm512_setzero_ps();
                for (int64_t k = 0; k < count; ++k) {
                    const __m512 value = load_bfloat16(layer.values + slots[k] * kv_width + offset + i);
                    mixed = _mm512_fmadd_ps(_mm512_set1_ps(scores[k]), value, mixed);
                }
                _mm512_storeu_ps(out + i, _mm512_mul_ps(mixed, _mm512_set1_ps(inverse)));
            }
        }
    }

    const Shape shape_;
    const std::vector<Layer> layers_;
    const float* const norm_;
    const Linear head_;
    Team team_;
    std::vector<float> queries_, attended_, gates_;
    // Of each thread, so that none has to ask for memory in the middle of a forward.
    std::vector<std::vector<float>> scores_, scratch_;
    Quantized quantized_;
};

}  // namespace

extern "C" {

void* outrider_decoder_new(const Shape* shape, const Layer* layers, const float* norm, const Linear* head,
                           int num_threads) {
    try {
        return new Decoder(*shape, layers, norm, *head, num_threads);
    } catch (...) {
        return nullptr;
    }
}

void outrider_decoder_delete(void* decoder) { delete static_cast<Decoder*>(decoder); }

// 0 when done, 1 when memory ran out.
int outrider_decoder_forward(void* decoder, const Step* step) {
    try {
        static_cast<Decoder*>(decoder)->forward(*step);
        return 0;
    } catch (...) {
        return 1;
    }
}
}
