// Exit codes of kvclient, and failures with an exit code.
#pragma once

#include <expected>
#include <string>
#include <utility>

#include "rkv/result.h"

namespace rkv::cli {

enum ExitCode : int {
  kDone = 0,
  kNotFoundExit = 1,
  kUsage = 2,
  kNoServer = 3,
  kFailed = 4,
  kConditionExit = 5,
};

struct Failure {
  ExitCode exit_code = kFailed;
  std::string sentence{};   // for stderr, without "kvclient: " and full stop
  bool wants_user = false;  // the server has answered that a client must prove to be a user
};
template <class T>
using OrFailure = std::expected<T, Failure>;

inline std::unexpected<Failure> failure(ExitCode exit_code, std::string sentence) {
  return std::unexpected(Failure{.exit_code = exit_code, .sentence = std::move(sentence)});
}

// The exit code for an operation's error. Errors while connecting are all kNoServer.
ExitCode exit_code_of(const Error& error);

}  // namespace rkv::cli
