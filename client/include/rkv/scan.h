// Keys in order: Client::scan() reads one page, Scanner steps through a whole range.
//
//   rkv::Scanner scanner(*client, {.prefix = "user/"});
//   for (const rkv::ScanEntry& entry : scanner) use(entry.key, entry.value);
//   if (!scanner.status()) return complain(to_string(scanner.status().error()));
//
// Promises of a scan. One page is the store at one instant after the call began. It has every PUT
// and DELETE that was acknowledged to any client before the call. Values longer than 64 KiB are the
// exception: they are read after the page. Several pages are several instants, each later than the
// one before. So a scan to its end, while other clients write:
//  - shows keys in strict order, and so none twice;
//  - shows every key that existed all the time, with a value that it had between begin and end;
//  - shows no key that existed at no moment of the scan.
// A key that is put or removed during the scan may be shown or not.
//
// Everything shown is in the server's write-ahead log. An expired key is not shown, though a GET
// may find it for up to 200 ms more. The number of a one-sided counter (client.h) is not older than
// the call; no GET shows its version. A scan continues across a restart of the server; what the
// restart lost is then missing.
//
// The order is that of the bytes, unsigned. The server must have a disk: without a disk (kvserver
// without --data-dir) there is no order, and the scan fails with kUnsupported.
//
// Threads: as the client that is used. The server keeps nothing between two pages, so a scan may be
// abandoned at any time.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv {

class Cluster;
namespace client {
class LongValues;
class PageReader;
}  // namespace client

// Prefix, start and end are combined: a scan shows the keys that satisfy all three, in either
// direction.
struct ScanOptions {
  std::string_view prefix{};  // keys that begin with it
  std::string_view start{};   // keys at or above it; empty = from the first key
  std::string_view end{};     // keys below it; empty = to the last key
  bool reverse = false;       // from the last key to the first
  bool keys_only = false;     // no values: saves the network, not the server's disk
  // Client::scan(): most entries in the page; 0 = as many as fit in 128 KiB. Scanner: most entries
  // in all; 0 = no limit.
  std::uint32_t limit = 0;
  // Token of the page before; empty = from the beginning. Prefix, start, end and reverse must be
  // those of that page; limit and keys_only may differ.
  std::string_view token{};
  std::chrono::milliseconds timeout{0};  // for each page; as Timeout in operations.h
};

// Valid as long as the page, or until the scanner's next step.
struct ScanEntry {
  std::string_view key;
  std::string_view value;       // empty with keys_only
  std::size_t value_bytes = 0;  // length of the value, with keys_only too
  std::uint64_t version = 0;    // as in Value
  std::uint64_t expires_at_ms = 0;
  bool is_counter = false;  // `value` is the counter's number: 8 bytes, little-endian
};

class ScanPage {
 public:
  ScanPage(ScanPage&&) noexcept = default;
  ScanPage& operator=(ScanPage&&) noexcept = default;
  std::span<const ScanEntry> entries() const { return entries_; }
  // For ScanOptions::token, to get the next page. Valid at any time, and with any client of any
  // server that has the data. Empty: the scan is over. An empty page may have a token, since the
  // server checks a bounded number of records for each page.
  std::string_view token() const { return token_; }
  // The page shows every write up to this version. 0 for a page of several servers, whose versions
  // do not compare.
  std::uint64_t version() const { return version_; }

 private:
  friend class Cluster;
  friend class client::LongValues;
  friend class client::PageReader;
  friend class Scanner;
  ScanPage() = default;
  std::unique_ptr<std::byte[]> bytes_;  // as received; the entries point into it
  std::vector<ScanPage> parts_;  // the pages of several servers, which the entries point into
  std::deque<std::string> long_values_;
  std::vector<ScanEntry> entries_;
  std::string_view token_;
  std::uint64_t version_ = 0;
};

// A source of pages of a scan: a Client or a Cluster.
template <class Store>
concept Scannable = requires(Store& store, const ScanOptions& options) {
  { store.scan(options) } -> std::same_as<Result<ScanPage>>;
};

// Steps through a range, a page at a time. Allocates the memory of a page.
class RKV_EXPORT Scanner {
 public:
  // Scans a server, or all servers of a Cluster in one order (cluster.h has the promises). Copies
  // what `options` points to. The store must outlive the scanner and must not be moved. Between
  // steps the store may be used for any operation.
  template <Scannable Store>
  explicit Scanner(Store& store, const ScanOptions& options = {})
      : Scanner(
            &store,
            [](void* source, const ScanOptions& page) {
              return static_cast<Store*>(source)->scan(page);
            },
            options) {}

  // Returns the next entry, valid until the next step; nullptr at the end. Blocks for a round trip
  // when a new page is needed, and for GETs of values longer than 64 KiB. Errors are those of
  // Client::scan(); after an error the same step may be tried again.
  Result<const ScanEntry*> next();

  // For range-based for: steps until the end or an error. status() then says which it was.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = ScanEntry;
    const ScanEntry& operator*() const { return *entry_; }
    const ScanEntry* operator->() const { return entry_; }
    Iterator& operator++() {
      entry_ = scanner_->step();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return entry_ == nullptr; }

   private:
    friend class Scanner;
    explicit Iterator(Scanner& scanner) : scanner_(&scanner), entry_(scanner.step()) {}
    Scanner* scanner_;
    const ScanEntry* entry_;
  };
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }
  // Status of the last step made by an iterator.
  const Status& status() const { return status_; }

  // For ScanOptions::token of another scan, which continues after the last entry shown. Empty when
  // status() is ok: the scan is over. REQUIRES: the last step found no entry, because of the limit,
  // the end or an error.
  const std::string& token() const { return token_; }

 private:
  using PageOf = Result<ScanPage> (*)(void* source, const ScanOptions& options);

  Scanner(void* source, PageOf page_of, const ScanOptions& options);
  const ScanEntry* step();
  Status next_page();

  void* source_;  // a Client or a Cluster
  PageOf page_of_;
  std::string prefix_;
  std::string start_;
  std::string end_;
  std::string token_;
  ScanOptions options_;  // without its strings
  ScanPage page_;
  std::size_t next_ = 0;    // index in the page's entries
  std::uint64_t left_ = 0;  // entries left of the limit
  std::string last_key_;    // last key shown
  bool any_shown_ = false;
  bool over_ = false;  // no page follows
  Status status_;
};

}  // namespace rkv
