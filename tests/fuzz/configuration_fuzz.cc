// A group's configuration as etcd has it (server/group/configuration/configuration.h): what is
// accepted says the same when it is written and read again, and keeps the invariants that one
// configuration shows. A replica can join it and take over, and the results are accepted too.
#include <algorithm>
#include <string>

#include "server/group/configuration/configuration.h"
#include "tests/fuzz/fuzz.h"

namespace {

using rkv::server::GroupConfiguration;
using rkv::server::parse_configuration;

void expect_same_again(const GroupConfiguration& configuration, const char* what) {
  const auto again = parse_configuration(to_text(configuration));
  RKV_CHECK(again && *again == configuration, what);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rkv::fuzz::Input input(data, size);
  const auto read = parse_configuration(rkv::as_text(input.rest()));
  if (!read) return 0;
  expect_same_again(*read, "what was written is read as another configuration");
  RKV_CHECK(read->number >= 1 && read->in_sync_count() >= 1, "GROUP-1, GROUP-3");
  RKV_CHECK(std::ranges::is_sorted(read->members, {}, &rkv::server::Member::name), "an order");
  RKV_CHECK(read->revoked.size() <= rkv::server::kMostRevoked, "too many revocations");
  const rkv::server::Replica joiner{.name = "joiner", .address = "192.0.2.9:7471", .epoch = 9};
  if (const auto next = joined(*read, joiner)) {
    expect_same_again(*next, "a configuration that was made is not accepted");
    RKV_CHECK(next->has_in_sync(joiner) && next->number == read->number + 1, "not joined");
    if (const auto later = taken_over(*next, joiner, next->term)) {
      expect_same_again(*later, "a take-over is not accepted");
      RKV_CHECK(later->term > next->term && later->has_primary(joiner), "GROUP-2");
    }
  }
  return 0;
}
