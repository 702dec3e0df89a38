#include "rkv/rdma/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace rkv::rdma {
namespace {

TEST(ErrnoAdapters, PositiveErrnoIsReturned) {
  EXPECT_TRUE(from_errno("ibv_modify_qp", 0));
  errno = ENOENT;  // must not be used
  const Status status = from_errno("ibv_modify_qp", EINVAL);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().sys_errno, EINVAL);
  EXPECT_STREQ(status.error().call, "ibv_modify_qp");
  EXPECT_EQ(status.error().code, Code::kInvalidArgument);
}

TEST(ErrnoAdapters, PositiveErrnoUnderstandsProvidersThatBreakTheRule) {
  errno = ENOMEM;
  EXPECT_EQ(from_errno("ibv_post_srq_recv", -1).error().sys_errno, ENOMEM);
  EXPECT_EQ(from_errno("ibv_post_srq_recv", -EAGAIN).error().sys_errno, EAGAIN);
  errno = 0;
  EXPECT_EQ(from_errno("ibv_post_srq_recv", -1).error().sys_errno, EPERM);
}

TEST(ErrnoAdapters, MinusOneTakesErrno) {
  errno = EADDRINUSE;
  EXPECT_TRUE(from_minus_one("rdma_bind_addr", 0));
  const Status status = from_minus_one("rdma_bind_addr", -1);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().sys_errno, EADDRINUSE);
  EXPECT_EQ(status.error().code, Code::kConflict);
}

TEST(ErrnoAdapters, NullTakesErrno) {
  int there = 0;
  EXPECT_EQ(from_null("ibv_alloc_pd", &there).value(), &there);
  errno = ENOMEM;
  EXPECT_EQ(from_null("ibv_alloc_pd", static_cast<int*>(nullptr)).error().sys_errno, ENOMEM);
  errno = 0;
  EXPECT_EQ(from_null("ibv_alloc_pd", static_cast<int*>(nullptr)).error().sys_errno, EIO);
}

TEST(ErrnoAdapters, NegativeCountIsAnError) {
  EXPECT_EQ(from_count("ibv_poll_cq", 0).value(), 0U);
  EXPECT_EQ(from_count("ibv_poll_cq", 7).value(), 7U);
  EXPECT_EQ(from_count("ibv_query_gid_table", -EOPNOTSUPP).error().code, Code::kUnsupported);
  EXPECT_EQ(from_count("ibv_poll_cq", -1).error().sys_errno, EIO);  // the man page only says
                                                                    // "negative"
}

TEST(ErrnoAdapters, NoEntryMeansEmpty) {
  EXPECT_TRUE(from_poll("ibv_start_poll", 0).value());
  EXPECT_FALSE(from_poll("ibv_start_poll", ENOENT).value());
  EXPECT_EQ(from_poll("ibv_start_poll", EINVAL).error().sys_errno, EINVAL);
}

TEST(ErrorText, NamesVerbErrnoAndWhatToDo) {
  const std::string text = to_string(verb_error("ibv_reg_mr", ENOMEM).error());
  EXPECT_NE(text.find("ibv_reg_mr"), std::string::npos);
  EXPECT_NE(text.find("errno 12"), std::string::npos);
  EXPECT_NE(text.find("memlock"), std::string::npos);
  EXPECT_EQ(verb_error("ibv_alloc_pd", ENOMEM).error().text, nullptr);
}

TEST(ErrorText, PermissionAndPortHaveAdvice) {
  EXPECT_EQ(verb_error("ibv_open_device", EACCES).error().code, Code::kPermission);
  EXPECT_NE(std::string(advice_for("ibv_open_device", EACCES)).find("/dev/infiniband"),
            std::string::npos);
  EXPECT_NE(std::string(advice_for("rdma_listen", EADDRINUSE)).find("listens"), std::string::npos);
}

TEST(ErrorText, EachClassOfErrnoHasItsCode) {
  const std::pair<int, Code> classes[] = {
      {EINVAL, Code::kInvalidArgument},  {ENOMEM, Code::kOutOfMemory},  {EACCES, Code::kPermission},
      {EPERM, Code::kPermission},        {EADDRINUSE, Code::kConflict}, {ENODEV, Code::kNoDevice},
      {ENETUNREACH, Code::kUnreachable}, {ETIMEDOUT, Code::kTimeout},   {EBUSY, Code::kBusy}};
  for (const auto& [number, code] : classes) {
    const Error error = verb_error("ibv_open_device", number).error();
    EXPECT_EQ(error.code, code) << number;
    EXPECT_EQ(error.sys_errno, number);
  }
}

TEST(ErrorText, MissingVerbIsUnsupportedAndNamed) {
  for (const int missing : {EOPNOTSUPP, ENOSYS, EPROTONOSUPPORT}) {
    const Error error = verb_error("ibv_advise_mr", missing).error();
    EXPECT_EQ(error.code, Code::kUnsupported);
    EXPECT_STREQ(error.call, "ibv_advise_mr");
  }
}

// Each text contains a word of its status, so a text in the wrong place is found.
TEST(CompletionStatus, EveryStatusIsExplained) {
  const std::map<ibv_wc_status, std::string> words = {
      {IBV_WC_SUCCESS, "success"},
      {IBV_WC_LOC_LEN_ERR, "local length"},
      {IBV_WC_LOC_QP_OP_ERR, "local queue-pair"},
      {IBV_WC_LOC_EEC_OP_ERR, "end-to-end context"},
      {IBV_WC_LOC_PROT_ERR, "local protection"},
      {IBV_WC_WR_FLUSH_ERR, "flushed"},
      {IBV_WC_MW_BIND_ERR, "window bind"},
      {IBV_WC_BAD_RESP_ERR, "bad response"},
      {IBV_WC_LOC_ACCESS_ERR, "local access"},
      {IBV_WC_REM_INV_REQ_ERR, "remote invalid request"},
      {IBV_WC_REM_ACCESS_ERR, "remote access"},
      {IBV_WC_REM_OP_ERR, "remote operation"},
      {IBV_WC_RETRY_EXC_ERR, "no acknowledgement"},
      {IBV_WC_RNR_RETRY_EXC_ERR, "posted no receive"}};
  std::set<std::string> texts;
  for (int number = IBV_WC_SUCCESS; number <= IBV_WC_TM_RNDV_INCOMPLETE; ++number) {
    const auto status = static_cast<ibv_wc_status>(number);
    const WcExplanation& why = explain(status);
    const auto word = words.find(status);
    const std::string expected = word != words.end() ? word->second : "the device or its driver";
    EXPECT_NE(std::string(why.text).find(expected), std::string::npos)
        << number << ": " << why.text;
    if (word != words.end()) {
      EXPECT_TRUE(texts.insert(why.text).second) << number;
    }
    EXPECT_EQ(why.kind == WcClass::kSuccess, status == IBV_WC_SUCCESS) << number;
    EXPECT_EQ(why.kind == WcClass::kDeviceError,
              word == words.end() || status == IBV_WC_BAD_RESP_ERR)
        << number;
  }
  EXPECT_EQ(explain(static_cast<ibv_wc_status>(31)).kind, WcClass::kDeviceError);
}

TEST(CompletionStatus, ClassesSayWhoseFaultItIs) {
  EXPECT_EQ(explain(IBV_WC_WR_FLUSH_ERR).kind, WcClass::kFlushed);
  EXPECT_EQ(explain(IBV_WC_LOC_PROT_ERR).kind, WcClass::kLocalError);
  EXPECT_EQ(explain(IBV_WC_REM_ACCESS_ERR).kind, WcClass::kRemoteRefused);
  EXPECT_EQ(explain(IBV_WC_REM_INV_REQ_ERR).kind, WcClass::kRemoteRefused);
  EXPECT_EQ(explain(IBV_WC_RETRY_EXC_ERR).kind, WcClass::kPeerUnreachable);
  EXPECT_EQ(explain(IBV_WC_RNR_RETRY_EXC_ERR).kind, WcClass::kReceiverNotReady);
  EXPECT_EQ(wc_error("RDMA READ", IBV_WC_REM_ACCESS_ERR).code, Code::kPermission);
  EXPECT_STREQ(wc_error("RDMA READ", IBV_WC_RETRY_EXC_ERR).call, "RDMA READ");
}

int reported_errno = 0;

TEST(TearDown, ErrorsReachTheHandler) {
  const TeardownHandler before =
      set_teardown_handler([](const Error& error) noexcept { reported_errno = error.sys_errno; });
  report_teardown({});
  EXPECT_EQ(reported_errno, 0);
  report_teardown(from_errno("ibv_destroy_cq", EBUSY));
  EXPECT_EQ(reported_errno, EBUSY);
  set_teardown_handler(before);
}

}  // namespace
}  // namespace rkv::rdma
