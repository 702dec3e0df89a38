// The bytes of a SCAN: what a client asks for, the page that answers, and the token that says where
// the next page begins. WIRE.md has each with a worked example. Little-endian.
//
//   ScanPageWriter writer(query, room);             // the server
//   while (... writer.add(record)) ...
//   const Bytes page = writer.finish(true);
//   RKV_ASSIGN_OR_RETURN(auto view, decode_scan_page(page, query.reverse));  // the client
//
// Invariants:
//  N1  Keys of a page rise strictly (fall, in reverse): decode_scan_page() refuses any other.
//  N2  A token continues the scan that it came from - the same prefix, bounds and direction - and
//      none else: it carries a check over them and itself. It says a key and nothing of the server
//      that made it, so it holds across restarts, and nobody keeps anything for it.
//  N3  What follows a token lies strictly behind its key, so no key comes twice in a scan.
//
// Thread safety: values and pure functions; a writer has one owner.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/layout.h"
#include "rkv/limits.h"
#include "rkv/result.h"

namespace rkv {

struct ScanQuery {
  bool reverse = false;
  bool keys_only = false;
  std::uint32_t limit = 0;  // entries in the page; 0 = as many as there is room for
  Bytes prefix{};
  Bytes start{};  // keys at or above it
  Bytes end{};    // keys below it; empty = no bound
  Bytes token{};  // of the page before; empty = the first page
};
inline constexpr std::size_t kScanQueryHeaderBytes = 16;
inline constexpr std::size_t kScanTokenHeaderBytes = 16;
inline constexpr std::size_t kMaxScanTokenBytes = kScanTokenHeaderBytes + kMaxKeyBytes;
inline constexpr std::size_t kMaxScanQueryBytes =
    kScanQueryHeaderBytes + 3 * kMaxKeyBytes + kMaxScanTokenBytes;

// `out` holds at least kMaxScanQueryBytes; prefix, bounds and token are within their limits.
std::size_t encode(const ScanQuery& query, MutableBytes out);
// Spans point into `bytes`. kInvalidArgument, kTooLarge with a sentence; a token that is not one of
// this scan is refused here.
Result<ScanQuery> decode_scan_query(Bytes bytes);

// The keys that are left to the scan: those at or above `lower`, and below `upper` if there is one.
struct KeyRange {
  std::string lower{};
  std::optional<std::string> upper{};
  bool reverse = false;
  bool is_empty() const { return upper && *upper <= lower; }
  bool holds(std::string_view key) const { return key >= lower && (!upper || key < *upper); }
};
// REQUIRES a query that was decoded, or one without a token.
KeyRange range_of(const ScanQuery& query);

// The token that continues `query` behind a key, as a page has it. The query's own is not looked
// at.
std::string scan_token(const ScanQuery& query, std::string_view key);
// The key in a token of this scan. kInvalidArgument: it is not one.
Result<std::string_view> key_of_token(const ScanQuery& query, Bytes token);

// ------------------------------------------------------------------------------------- pages

inline constexpr std::size_t kScanPageHeaderBytes = 8;
inline constexpr std::size_t kScanEntryBytes = 24;
inline constexpr std::size_t kMaxScanPageBytes = kMaxInlineBytes;
// Longer values stay out of pages: the client GETs them.
inline constexpr std::size_t kMaxScanValueBytes = std::size_t{64} << 10;
static_assert(kScanPageHeaderBytes + kScanEntryBytes + kMaxKeyBytes + kMaxScanValueBytes +
                  kMaxScanTokenBytes <=
              kMaxScanPageBytes);

struct ScanItem {
  Version version{};
  std::uint64_t expiry_ms = 0;  // Unix milliseconds, 0 = never
  bool counter = false;
  bool left_out = false;           // the value is not in `value`
  std::uint32_t value_length = 0;  // of the value, left out or not
  Bytes key{};
  Bytes value{};
};

// Fills a page. Allocates its bytes once.
class ScanPageWriter {
 public:
  // Continues `query` where the page ends.
  explicit ScanPageWriter(const ScanQuery& query);
  // False: there is no room for it, or the limit is reached; the page ends before it. Keys come in
  // the order of the scan.
  bool add(const RecordFields& record);
  // A record that is not to be shown was looked at: the next page begins behind it.
  void pass(Bytes key) { last_key_.assign(as_text(key)); }
  // `more`: whether the range may go on behind the last key added or passed.
  std::vector<std::byte> finish(bool more) &&;

 private:
  std::uint64_t scan_;  // which one, for the token
  std::uint32_t limit_;
  bool keys_only_;
  std::uint32_t count_ = 0;
  std::string last_key_;
  std::vector<std::byte> bytes_;
};

struct ScanPageView {
  std::vector<ScanItem> items;  // spans point into the page
  Bytes token{};                // empty: the scan is over
};
// kCorrupt for bytes that no writer makes.
Result<ScanPageView> decode_scan_page(Bytes page, bool reverse);

}  // namespace rkv
