// Random choices of the clients of a recorded run: keys, values and deadlines.
//
// Thread safety: none; one for each thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/random.h"
#include "tests/history/run.h"

namespace rkv::history {

class Choices {
 public:
  struct Key {
    enum class Kind : std::uint8_t { kText, kCounter, kBrief };
    std::string name;
    Kind kind;
  };

  // `number`: of the thread. The options must outlive the choices.
  Choices(const RunOptions& options, int number);

  Key any_key();
  Key key_at(std::size_t number) const;
  std::string any_value();
  std::chrono::milliseconds any_timeout();
  Random& random() { return random_; }

 private:
  const RunOptions& options_;
  const int number_;
  Random random_;
  std::size_t written_ = 0;
};

// Values are stretched to a length; the history has only their first word. A value read is compared
// as a whole, so a mixture of two values gets a name that no write has.
std::string stretched(const std::string& tag, std::size_t length);
std::string tag_of(const std::string& value);

}  // namespace rkv::history
