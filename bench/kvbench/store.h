// YCSB's five operations on rkv, for one thread with its own connection.
//
// A record is one value (record.h). An insert is a PUT. A read is a one-sided GET. A scan is one
// request per page of keys. An update of all fields is a PUT. An update of one field is a GET and a
// PUT on condition that the version is still the one read; otherwise both are repeated, so that no
// update of another field is lost. (With StoreSettings::plain_updates the PUT has no condition, as
// in a store without versions.)
//
// Thread safety: as for a Client.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/kvbench/measurements.h"
#include "rkv/cluster.h"

namespace rkv::kvbench {

struct StoreSettings {
  bool plain_updates = false;
  Durability durability = Durability::kDefault;
  std::size_t value_bytes = 0;  // longest expected record; longer records can be read too
};

struct Answer {
  Outcome outcome = Outcome::kOk;
  Error error{};  // valid if outcome is not kOk
  bool ok() const { return outcome == Outcome::kOk; }
};

// Bytes of values and repetitions, in addition to ClientStats.
struct StoreCounters {
  std::uint64_t value_bytes_read = 0;
  std::uint64_t value_bytes_written = 0;
  std::uint64_t records_scanned = 0;
  std::uint64_t update_conflicts = 0;  // updates repeated because another writer came between
};

class Store {
 public:
  Store(Cluster client, const StoreSettings& settings);

  // Reads the record's fields; they are valid until the next call.
  Answer read(std::string_view key);
  const std::vector<std::string_view>& fields() const { return fields_; }

  Answer insert(std::string_view key, const std::vector<std::string_view>& fields);
  // `field`: index of the field to update; nullopt when `fields` is the whole record.
  Answer update(std::string_view key, std::optional<std::size_t> field,
                const std::vector<std::string_view>& fields);
  // As update(), for a record that read() has just returned. The first attempt uses the version of
  // that read; the record is read again only after a conflict.
  Answer update_read(std::string_view key, std::optional<std::size_t> field,
                     const std::vector<std::string_view>& fields);
  // Scans up to `count` records from `key` on; sets `found` to their number.
  Answer scan(std::string_view key, std::uint32_t count, std::uint64_t& found);

  // ---- pipelined, in any order. Callers compose an update from these; such an update is plain.

  // Calls visit(index, answer, value) once per key, when its answer arrives. `visit` must not use
  // the store.
  template <class Visitor>
  void read_many(std::span<const std::string_view> keys, Visitor&& visit) {
    client_.multi_get_into(keys, [&](std::size_t index, const Result<ValueView>& got) {
      counters_.value_bytes_read += got ? got->value.size() : 0;
      visit(index, got ? Answer{} : answer_of(got.error()), got ? got->value : std::string_view{});
    });
  }
  // Calls visit(index, answer) once per item; as read_many().
  template <class Visitor>
  void put_many(std::span<const KeyValue> items, Visitor&& visit) {
    client_.multi_put_each(items,
                           [&](std::size_t index, const Result<std::uint64_t>& put) {
                             counters_.value_bytes_written += put ? items[index].value.size() : 0;
                             visit(index, put ? Answer{} : answer_of(put.error()));
                           },
                           {.durability = settings_.durability});
  }

  Cluster& client() { return client_; }
  const StoreCounters& counters() const { return counters_; }

 private:
  Answer answer_of(const Error& error) const;
  Answer put(std::string_view key, std::string_view value, bool if_read_version);
  Answer change(std::string_view key, std::optional<std::size_t> field,
                const std::vector<std::string_view>& fields, bool have_read);

  Cluster client_;
  StoreSettings settings_;
  StoreCounters counters_;
  std::string buffer_;  // the last record read: its first read_bytes_ bytes
  std::size_t read_bytes_ = 0;
  std::uint64_t version_ = 0;
  std::string value_;  // value to be put
  std::string spare_;
  std::vector<std::string_view> fields_;
};

}  // namespace rkv::kvbench
