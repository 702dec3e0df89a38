// The archive of ended sessions attacked by threads: workers that put tables, and workers that are
// asked about them meanwhile (ONCE-3, ONCE-5).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "server/request/outcome_archive.h"

namespace rkv::server {
namespace {

constexpr std::uint64_t kThreads = 4;  // that put, and as many that ask
constexpr std::uint64_t kSessionsEach = 20'000;
constexpr std::size_t kCapacity = 64;

// The sequence of the only write of a session.
std::uint64_t sequence_of(std::uint64_t session) {
  return kLanes * session;
}

std::shared_ptr<const User> user_of(std::uint64_t number) {
  return std::make_shared<const User>(User{.name = number == 0 ? "anna" : "ben",
                                           .role = Role::kWrite,
                                           .keys = {.stored_key = {std::byte(number)}}});
}

struct Seen {
  std::uint64_t found = 0;
  std::uint64_t of_others = 0;       // tables of another session or another user
  std::uint64_t came_back = 0;       // tables that were there after they were forgotten
  std::uint64_t above_capacity = 0;  // looks at more tables than the archive may have
};

// Runs the threads and collects their observations. The users of the sessions alternate.
class Attack {
 public:
  explicit Attack(OutcomeArchive& archive) : archive_(archive) {}

  Seen run() {
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([this, i] { put(i); });
      threads.emplace_back([this, i] { ask(i); });
    }
    for (std::thread& thread : threads)
      thread.join();
    Seen all;
    for (const Seen& one : seen_) {
      all.found += one.found;
      all.of_others += one.of_others;
      all.came_back += one.came_back;
      all.above_capacity += one.above_capacity;
    }
    return all;
  }

 private:
  static std::uint64_t session_of(std::uint64_t thread, std::uint64_t number) {
    return 1 + number * kThreads + thread;
  }
  const User* user(std::uint64_t session) const { return users_[session % 2].get(); }

  void put(std::uint64_t thread) {
    for (std::uint64_t number = 0; number < kSessionsEach; ++number) {
      const std::uint64_t session = session_of(thread, number);
      auto table = std::make_shared<Outcomes>();
      table->keep({.opcode = Opcode::kPut, .sequence = sequence_of(session)}, {}, {});
      archive_.put(session, users_[session % 2], std::move(table));
      last_[thread].store(number + 1, std::memory_order_release);
    }
  }

  // Asks about the latest sessions of one putting thread until it has put all.
  void ask(std::uint64_t thread) {
    Seen& seen = seen_[thread];
    std::uint64_t lost = 0;  // sessions below this were forgotten, as the oldest go first
    while (lost < kSessionsEach) {
      const std::uint64_t end = last_[thread].load(std::memory_order_acquire);
      for (std::uint64_t number = end > kCapacity ? end - kCapacity : 0; number < end; ++number)
        look(session_of(thread, number), number, lost, seen);
      if (archive_.size() > kCapacity) ++seen.above_capacity;
      if (end == kSessionsEach) break;
    }
  }

  void look(std::uint64_t session, std::uint64_t number, std::uint64_t& lost, Seen& seen) {
    const auto own = archive_.find(session, user(session));
    if (own == nullptr) {
      lost = std::max(lost, number + 1);
    } else {
      ++seen.found;
      if (number < lost) ++seen.came_back;
      if (own->fate_of(sequence_of(session)) != Outcomes::Fate::kApplied) ++seen.of_others;
    }
    if (archive_.find(session, user(session + 1)) != nullptr) ++seen.of_others;
  }

  OutcomeArchive& archive_;
  const std::array<std::shared_ptr<const User>, 2> users_{user_of(0), user_of(1)};
  std::array<std::atomic<std::uint64_t>, kThreads> last_{};
  std::array<Seen, kThreads> seen_{};
};

TEST(EndedSessionsOfManyWorkers, AreTheirOwnersOrForgottenForGood) {
  const SteadyClock clock;
  OutcomeArchive archive(clock, kCapacity);
  const Seen seen = Attack(archive).run();
  EXPECT_GT(seen.found, 0U);
  EXPECT_EQ(seen.of_others, 0U);
  EXPECT_EQ(seen.came_back, 0U);
  EXPECT_EQ(seen.above_capacity, 0U);
  EXPECT_EQ(archive.size(), kCapacity);
}

// Twins of the test above: what it would see of archives that break the rules.
TEST(EndedSessionsOfManyWorkers, AnEmptyTableForAForgottenOneIsNoticed) {
  class Forgetful : public OutcomeArchive {
   public:
    using OutcomeArchive::OutcomeArchive;
    std::shared_ptr<const Outcomes> find(std::uint64_t session, const User* user) const override {
      auto found = OutcomeArchive::find(session, user);
      return found != nullptr ? found : std::make_shared<const Outcomes>();
    }
  };
  const SteadyClock clock;
  Forgetful archive(clock, kCapacity);
  EXPECT_GT(Attack(archive).run().of_others, 0U);
}

TEST(EndedSessionsOfManyWorkers, ATableOfAnotherSessionIsNoticed) {
  class Mistaken : public OutcomeArchive {
   public:
    using OutcomeArchive::OutcomeArchive;
    std::shared_ptr<const Outcomes> find(std::uint64_t session, const User* user) const override {
      auto found = OutcomeArchive::find(session + 2 * kThreads, user);  // of the same user
      return found != nullptr ? found : OutcomeArchive::find(session, user);
    }
  };
  const SteadyClock clock;
  Mistaken archive(clock, kCapacity);
  EXPECT_GT(Attack(archive).run().of_others, 0U);
}

}  // namespace
}  // namespace rkv::server
