#include "bench/kvbench/hdr_histogram.h"

#include <algorithm>
#include <bit>
#include <string_view>

namespace rkv::kvbench {

void HdrHistogram::record(std::uint64_t value, std::uint64_t times) {
  add_at(HdrBuckets::index(value), times);
}

void HdrHistogram::add_at(std::size_t index, std::uint64_t times) {
  counts_[index] += times;
  total_ += times;
}

void HdrHistogram::add(const HdrHistogram& other) {
  for (std::size_t i = 0; i < counts_.size(); ++i)
    counts_[i] += other.counts_[i];
  total_ += other.total_;
}

void HdrHistogram::subtract(const HdrHistogram& earlier) {
  for (std::size_t i = 0; i < counts_.size(); ++i)
    counts_[i] -= earlier.counts_[i];
  total_ -= earlier.total_;
}

std::uint64_t HdrHistogram::min() const {
  const auto found = std::ranges::find_if(counts_, [](std::uint64_t n) { return n != 0; });
  if (found == counts_.end()) return 0;
  return HdrBuckets::lowest(static_cast<std::size_t>(found - counts_.begin()));
}

std::uint64_t HdrHistogram::max() const {
  for (std::size_t i = counts_.size(); i-- > 0;) {
    if (counts_[i] != 0) return HdrBuckets::highest(i);
  }
  return 0;
}

double HdrHistogram::mean() const {
  if (total_ == 0) return 0;
  double sum = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    const std::uint64_t lowest = HdrBuckets::lowest(i);
    const std::uint64_t middle = lowest + (HdrBuckets::lowest(i + 1) - lowest) / 2;
    sum += static_cast<double>(middle) * static_cast<double>(counts_[i]);
  }
  return sum / static_cast<double>(total_);
}

std::uint64_t HdrHistogram::percentile(double percent) const {
  if (total_ == 0) return 0;
  const std::uint64_t wanted = percentile_rank(percent, total_);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= wanted) return HdrBuckets::highest(i);
  }
  return max();
}

// --------------------------------------------------------------------------------- encoding

namespace {

constexpr std::uint32_t kV2Cookie = 0x1c849313;
constexpr std::uint32_t kV2CompressedCookie = 0x1c849314;
constexpr std::uint32_t kSignificantDigits = 3;

void append_big_endian(std::uint64_t number, unsigned bytes, std::string& out) {
  for (unsigned i = bytes; i-- > 0;)
    out.push_back(static_cast<char>(number >> (8 * i)));
}

// ZigZag and LEB128. The original's ninth byte would hold 8 bits, but no count is that large.
void append_zigzag(std::int64_t number, std::string& out) {
  auto rest = (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
  while (rest >= 0x80) {
    out.push_back(static_cast<char>(rest | 0x80U));
    rest >>= 7;
  }
  out.push_back(static_cast<char>(rest));
}

// RFC 1950 with stored blocks of RFC 1951: encoded counts are short without compression, and no
// library is needed.
std::string zlib_stored(std::string_view bytes) {
  constexpr std::size_t kLargestBlock = 65535;
  std::string out("\x78\x01", 2);
  std::uint32_t low = 1;
  std::uint32_t high = 0;
  for (const char c : bytes) {  // Adler-32
    low = (low + static_cast<unsigned char>(c)) % 65521;
    high = (high + low) % 65521;
  }
  do {
    const std::string_view block = bytes.substr(0, kLargestBlock);
    bytes.remove_prefix(block.size());
    out.push_back(bytes.empty() ? 1 : 0);  // flag of the last block
    const auto length = static_cast<std::uint16_t>(block.size());
    for (const std::uint16_t half : {length, static_cast<std::uint16_t>(~length)}) {
      out.push_back(static_cast<char>(half));
      out.push_back(static_cast<char>(half >> 8));
    }
    out.append(block);
  } while (!bytes.empty());
  append_big_endian(std::uint64_t{high} << 16 | low, 4, out);
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view three = bytes.substr(i, 3);
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (j < three.size() ? static_cast<unsigned char>(three[j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      out.push_back(j <= three.size() ? kDigits[bits >> (18 - 6 * j) & 63U] : '=');
  }
  return out;
}

}  // namespace

std::string HdrHistogram::encode() const {
  std::string payload;
  const std::size_t end = total_ == 0 ? 1 : HdrBuckets::index(max()) + 1;
  for (std::size_t i = 0; i < end;) {
    std::size_t zeros = 0;
    while (i + zeros < end && counts_[i + zeros] == 0)
      ++zeros;
    if (zeros == 0) {
      append_zigzag(static_cast<std::int64_t>(counts_[i++]), payload);
    } else {
      append_zigzag(zeros == 1 ? 0 : -static_cast<std::int64_t>(zeros), payload);
      i += zeros;
    }
  }
  std::string plain;
  append_big_endian(kV2Cookie, 4, plain);
  append_big_endian(payload.size(), 4, plain);
  append_big_endian(0, 4, plain);  // normalizing index offset
  append_big_endian(kSignificantDigits, 4, plain);
  append_big_endian(1, 8, plain);  // lowest discernible value
  append_big_endian(HdrBuckets::kMost, 8, plain);
  append_big_endian(std::bit_cast<std::uint64_t>(1.0), 8, plain);  // conversion ratio
  plain += payload;
  const std::string compressed = zlib_stored(plain);
  std::string out;
  append_big_endian(kV2CompressedCookie, 4, out);
  append_big_endian(compressed.size(), 4, out);
  return base64(out + compressed);
}

void LatencyRecorder::add_to(HdrHistogram& total) const {
  for (std::size_t i = 0; i < HdrBuckets::kCount; ++i) {
    const std::uint64_t count = counts_[i].load(std::memory_order_relaxed);
    if (count != 0) total.add_at(i, count);
  }
}

}  // namespace rkv::kvbench
