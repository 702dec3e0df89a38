// Operations by their deadlines, beside a multimap.
#include "client/async/deadlines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace rkv::client {
namespace {

struct Model {
  std::multimap<Nanos, AsyncOperation*> by_deadline;
  std::vector<std::unique_ptr<AsyncOperation>> operations;

  Nanos first() const {
    return by_deadline.empty() ? Deadlines::kNever : by_deadline.begin()->first;
  }
  bool erase(AsyncOperation* operation) {
    const auto found =
        std::ranges::find(by_deadline, operation, [](const auto& each) { return each.second; });
    if (found == by_deadline.end()) return false;
    by_deadline.erase(found);
    return true;
  }
};

TEST(Deadlines, AnyOrderOfAddingAndRemovingGivesTheEarliestFirst) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::minstd_rand random(seed);
    const auto below = [&](std::uint32_t limit) { return static_cast<Nanos>(random() % limit); };
    const bool in_order = seed % 3 == 0;  // mostly
    Deadlines due;
    Model model;
    Nanos now = 0;
    for (int step = 0; step < 300; ++step) {
      const Nanos kind = below(10);
      if (kind < 5) {
        const Nanos at = now + (in_order && below(8) != 0 ? 100 : below(120));
        AsyncOperation& made = *model.operations.emplace_back(std::make_unique<AsyncOperation>());
        due.add(made, at);
        model.by_deadline.emplace(at, &made);
      } else if (kind < 8 && !model.operations.empty()) {
        auto& any = *model.operations[random() % model.operations.size()];
        model.erase(&any);
        due.remove(any);  // which may be out already
      } else {
        now += below(10);
        while (AsyncOperation* const popped = due.pop(now)) {
          ASSERT_TRUE(model.erase(popped)) << "it was not in there";
        }
        ASSERT_GT(model.first(), now) << "one that is due was left";
      }
      ASSERT_EQ(due.first(), model.first());
    }
    while (AsyncOperation* const popped = due.pop(Deadlines::kNever))
      ASSERT_TRUE(model.erase(popped));
    EXPECT_TRUE(model.by_deadline.empty());
  }
}

}  // namespace
}  // namespace rkv::client
