// Counts the errors that destructors report, while it exists. An object that could not be destroyed
// because another one still depends on it is such an error.
//
//   TeardownErrors errors;
//   ... destroy objects ...
//   EXPECT_EQ(errors.count(), 0);
//
// One instance at a time. Thread safety: any thread may report an error.
#pragma once

#include <atomic>

#include "rkv/rdma/error.h"

namespace rkv::rdma::testing {

class TeardownErrors {
 public:
  TeardownErrors() : before_(set_teardown_handler([](const Error&) noexcept { ++reported; })) {
    reported = 0;
  }
  TeardownErrors(const TeardownErrors&) = delete;
  TeardownErrors& operator=(const TeardownErrors&) = delete;
  ~TeardownErrors() { set_teardown_handler(before_); }
  int count() const { return reported; }

 private:
  inline static std::atomic<int> reported = 0;
  TeardownHandler before_;
};

}  // namespace rkv::rdma::testing
