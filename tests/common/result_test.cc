#include "rkv/result.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace rkv {
namespace {

Result<int> half_of(int n) {
  if (n % 2 != 0) return fail(Code::kInvalidArgument, "odd");
  return n / 2;
}
Result<int> quarter_of(int n) {
  RKV_ASSIGN_OR_RETURN(const int half, half_of(n));
  return half_of(half);
}

TEST(Result, CarriesValueOrError) {
  EXPECT_EQ(*quarter_of(12), 3);
  EXPECT_EQ(quarter_of(6).error().code, Code::kInvalidArgument);
}

TEST(Error, NamesTheCallKeepsErrnoAndSaysWhatToDo) {
  const Error error =
      fail_call(Code::kOutOfMemory, "ibv_reg_mr", ENOMEM, "raise the limit").error();
  EXPECT_EQ(to_string(error), "ibv_reg_mr: Cannot allocate memory (errno 12): raise the limit");
}

TEST(Error, SaysThatAWriteMayHaveHappened) {
  const Error error{.code = Code::kTimeout, .write = WriteOutcome::kMayHaveHappened};
  EXPECT_EQ(to_string(error), "timed out; the write may have happened");
}

}  // namespace
}  // namespace rkv
