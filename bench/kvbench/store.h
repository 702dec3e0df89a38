// YCSB's five operations on rkv, for one thread with a connection of its own.
//
// A record is one value (record.h). An insert is a PUT. A read is a one-sided GET. A scan is one
// request for each page of keys. An update of all fields is a PUT; of one field a GET and a PUT
// that is made only if the version is still the one that was read, else both are done again: no
// update of another field is lost. (How::kPlain puts without the condition, as a store without
// versions must.)
//
// Thread safety: as a Client.
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
  std::size_t value_bytes = 0;  // of the longest record expected; longer ones are read too
};

struct Answer {
  Outcome outcome = Outcome::kOk;
  Error error{};  // where it is not kOk
  bool ok() const { return outcome == Outcome::kOk; }
};

// Bytes of values and repetitions, besides what ClientStats counts.
struct StoreCounters {
  std::uint64_t value_bytes_read = 0;
  std::uint64_t value_bytes_written = 0;
  std::uint64_t records_scanned = 0;
  std::uint64_t update_conflicts = 0;  // updates made again because another writer came between
};

class Store {
 public:
  Store(Cluster client, const StoreSettings& settings);

  // The record's fields, valid until the next call.
  Answer read(std::string_view key);
  const std::vector<std::string_view>& fields() const { return fields_; }

  Answer insert(std::string_view key, const std::vector<std::string_view>& fields);
  // `field`: which one, or none when `fields` are all of the record.
  Answer update(std::string_view key, std::optional<std::size_t> field,
                const std::vector<std::string_view>& fields);
  // The same for a record that read() has just returned: the version is that of the read, so that
  // read and write are one. Only after a conflict it is read again.
  Answer update_read(std::string_view key, std::optional<std::size_t> field,
                     const std::vector<std::string_view>& fields);
  // Up to `count` records from `key` on; `found` says how many.
  Answer scan(std::string_view key, std::uint32_t count, std::uint64_t& found);

  // ---- pipelined, in any order. An update is to be made of these by the caller, and is plain.

  // visit(index, answer, value) once for each key, when it is answered. It must not use the store.
  template <class Visitor>
  void read_many(std::span<const std::string_view> keys, Visitor&& visit) {
    client_.multi_get_into(keys, [&](std::size_t index, const Result<ValueView>& got) {
      counters_.value_bytes_read += got ? got->value.size() : 0;
      visit(index, got ? Answer{} : answer_of(got.error()), got ? got->value : std::string_view{});
    });
  }
  // visit(index, answer), likewise.
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
  std::string buffer_;  // what was read: its first read_bytes_
  std::size_t read_bytes_ = 0;
  std::uint64_t version_ = 0;
  std::string value_;  // what is put
  std::string spare_;
  std::vector<std::string_view> fields_;
};

}  // namespace rkv::kvbench
