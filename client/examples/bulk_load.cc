// Many records: put with many in flight, flushed to disk, read back and compared.
//
//   bulk_load [HOST:PORT [RECORDS]]
//
// Failed writes are reported one by one: a batch is not a transaction. Keys and values are views,
// so a program that has its records in memory copies nothing.
#include <rkv/client.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

int complain(const char* doing, const rkv::Error& error) {
  std::fprintf(stderr, "%s: %s\n", doing, rkv::to_string(error).c_str());
  return 1;
}

struct Record {
  std::string key;
  std::string value;
};

std::vector<Record> make_records(std::size_t count) {
  std::vector<Record> records;
  records.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    records.push_back({.key = "record/" + number, .value = std::string(100, 'v') + number});
  }
  return records;
}

// Returns how many records could not be put; prints the first error.
std::size_t put_all(rkv::Client& client, const std::vector<Record>& records) {
  std::vector<rkv::KeyValue> items;
  for (const Record& record : records)
    items.push_back({.key = record.key, .value = record.value});
  std::size_t failed = 0;
  client.multi_put_each(items, [&](std::size_t index, const rkv::Result<std::uint64_t>& put) {
    if (!put && failed++ == 0) complain(records[index].key.c_str(), put.error());
  });
  return failed;
}

// Returns how many records come back as they were put.
std::size_t compare_all(rkv::Client& client, const std::vector<Record>& records) {
  std::vector<std::string_view> keys;
  for (const Record& record : records)
    keys.push_back(record.key);
  std::size_t equal = 0;
  client.multi_get_into(keys, [&](std::size_t index, const rkv::Result<rkv::ValueView>& got) {
    if (got && got->value == records[index].value) ++equal;
  });
  return equal;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t count = 10'000;
  if (argc > 2) {
    const char* end = argv[2] + std::strlen(argv[2]);
    if (std::from_chars(argv[2], end, count).ptr != end || count == 0) {
      std::fprintf(stderr, "RECORDS must be a number from 1, not '%s'\n", argv[2]);
      return 2;
    }
  }
  // The timeout is that of one call: here of a call with all records. So connect() is not to use
  // all of it for a server that is not there.
  auto client = rkv::Client::connect({.server = argc > 1 ? argv[1] : "127.0.0.1:7471",
                                      .timeout = std::chrono::minutes(5),
                                      .repeat_connect = false});
  if (!client) return complain("connect", client.error());

  const std::vector<Record> records = make_records(count);
  const std::size_t failed = put_all(*client, records);
  std::printf("put: %zu, failed: %zu\n", count - failed, failed);
  // Waits until the records are on disk, if the server has a disk.
  if (const auto flushed = client->flush();
      !flushed && flushed.error().code != rkv::Code::kUnsupported) {
    return complain("flush", flushed.error());
  }
  const std::size_t equal = compare_all(*client, records);
  std::printf("compared equal: %zu\n", equal);
  return equal == count ? 0 : 1;
}
