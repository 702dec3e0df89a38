#include "tests/history/durable_writer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace rkv::history {
namespace {

using WriteEnd = testing_support::CrashLedger::Outcome;
using Shown = testing_support::CrashLedger::Shown;

std::string key_name(const Shared& shared, std::size_t key) {
  return fmt::format("{}durable-{}", shared.options.prefix, key);
}

}  // namespace

DurableWriter::DurableWriter(Shared& shared, std::size_t number,
                             testing_support::CrashLedger& ledger)
    : shared_(shared),
      number_(number),
      ledger_(ledger),
      random_(shared.options.seed * 1000 + 500 + number) {}

void DurableWriter::run() {
  Client client = connect(shared_, random_());
  while (!shared_.over) {
    shared_.rest_if_held();
    write(client);
  }
}

void DurableWriter::write(Client& client) {
  const std::size_t key = number_ * kKeysEach + random_.below(kKeysEach);
  const bool removal = random_.below(8) == 0;
  const Durability level =
      random_.below(3) == 0 ? static_cast<Durability>(1 + random_.below(2)) : Durability::kSync;
  const std::string value = ledger_.begin(key, removal ? 0 : 10 + random_.below(400), level);
  const Nanos began = shared_.clock.now();
  const auto timeout = shared_.options.timeout;
  const auto done =
      removal ? client.remove(key_name(shared_, key), {.durability = level, .timeout = timeout})
              : client.put_with(key_name(shared_, key), value,
                                {.timeout = timeout, .durability = level});
  lateness_.note(shared_.clock.now() - began - timeout.count() * kNanosPerMs,
                 [&] { return fmt::format("a write of {}", key_name(shared_, key)); });
  if (done) {
    if (level == Durability::kSync) ++synced_;
    return ledger_.end(key, WriteEnd::kDone, *done);
  }
  const bool in_doubt = done.error().write == WriteOutcome::kMayHaveHappened;
  ledger_.end(key, in_doubt ? WriteEnd::kUnknown : WriteEnd::kRefused);
}

std::vector<Shown> DurableWriter::look(const Shared& shared, Client& client, std::size_t writers) {
  std::vector<Shown> shown(writers * kKeysEach);
  for (std::size_t key = 0; key < shown.size(); ++key) {
    const auto got = client.get(key_name(shared, key));
    if (got) {
      shown[key] = {.value = got->value, .version = got->version};
    } else {
      EXPECT_EQ(got.error().code, Code::kNotFound) << to_string(got.error());
    }
  }
  return shown;
}

}  // namespace rkv::history
