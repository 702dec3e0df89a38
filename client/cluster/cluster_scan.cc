// Reads one page of all servers of a Cluster.
//
// Invariants:
//  CSCAN-1  A server's page with a token says nothing about keys after its token. So the merged
//      page ends at the first of these tokens in the order of the scan. Entries that other servers
//      had after it are read again with the next page.
//  CSCAN-2  The merged token is a token that any of the servers might have made (SCAN-2 of
//      common/scan.h), and each server accepts it.
#include <algorithm>
#include <optional>

#include "client/engine/long_values.h"
#include "client/engine/page_reader.h"
#include "rkv/cluster.h"

namespace rkv {

using client::LongValues;

// Entries of the servers' pages, and the key at which the merged page ends if the scan goes on
// (CSCAN-1).
struct Cluster::Merge {
  struct Found {
    ScanEntry entry;
    bool left_out = false;
  };

  const ShardMap& map;
  const ScanQuery& query;
  std::vector<Found> found{};
  std::optional<std::string> end{};

  bool before(std::string_view one, std::string_view other) const {
    return query.reverse ? one > other : one < other;
  }
  // `left_out`: indices of the entries whose values are not in the page.
  Status take(const ScanPage& part, std::size_t server, std::span<const std::size_t> left_out) {
    for (std::size_t i = 0; i < part.entries_.size(); ++i) {
      const bool is_left_out = !left_out.empty() && left_out.front() == i;
      if (is_left_out) left_out = left_out.subspan(1);
      const ScanEntry& entry = part.entries_[i];
      if (map.shard_of(entry.key) == server) found.push_back({entry, is_left_out});
    }
    if (part.token_.empty()) return {};
    const auto key = key_of_token(query, as_bytes(part.token_));
    if (!key) return fail(Code::kCorrupt, "the server's scan page has the token of another scan");
    if (!end || before(*key, *end)) end = std::string(*key);
    return {};
  }
  void finish() {
    std::ranges::sort(found, [&](const Found& one, const Found& other) {
      return before(one.entry.key, other.entry.key);
    });
    if (end) std::erase_if(found, [&](const Found& one) { return before(*end, one.entry.key); });
    if (query.limit == 0 || found.size() <= query.limit) return;
    found.resize(query.limit);
    end = std::string(found.back().entry.key);
  }
};

Result<ScanPage> Cluster::scan(const ScanOptions& options) {
  if (clients_.size() == 1 && clients_.front() != nullptr) return clients_.front()->scan(options);
  const Deadline deadline = deadline_of(options.timeout);
  RKV_ASSIGN_OR_RETURN(const ScanQuery query, client::query_of(options));
  ScanPage page;
  Merge merge{.map = map_, .query = query};
  const auto asked =
      ask(all_servers(), options.timeout, false,
          [&](Client& one, std::size_t server, Timeout part) -> Status {
            std::vector<std::size_t> left_out;
            RKV_ASSIGN_OR_RETURN(
                ScanPage some, client::PageReader(*one.engine_)
                                   .read_without_long_values(options, deadline_of(part), left_out));
            RKV_RETURN_IF_ERROR(merge.take(some, server, left_out));
            page.parts_.push_back(std::move(some));
            return {};
          });
  for (const Status& one : asked)
    RKV_RETURN_IF_ERROR(one);
  merge.finish();
  std::vector<std::size_t> left_out;
  for (const Merge::Found& one : merge.found) {
    if (one.left_out) left_out.push_back(page.entries_.size());
    page.entries_.push_back(one.entry);
  }
  if (merge.end) {
    const std::string token = scan_token(query, *merge.end);
    page.bytes_ = std::make_unique_for_overwrite<std::byte[]>(token.size());
    std::ranges::copy(as_bytes(token), page.bytes_.get());
    page.token_ = as_text({page.bytes_.get(), token.size()});
  }
  if (left_out.empty()) return page;
  LongValues values(page, left_out);
  multi_get_into(
      values.keys(), [&](std::size_t i, const Result<ValueView>& got) { values.take(i, got); },
      {.at_least = LongValues::kAtLeast, .timeout = Timeout(std::max(deadline.left_ms(), 1))});
  RKV_RETURN_IF_ERROR(values.finish());
  return page;
}

}  // namespace rkv
