#include "client/link/handshake.h"

#include <fmt/format.h>

#include <algorithm>

namespace rkv::client {

namespace {
constexpr const char* kNoUsers =
    "the server has no users, so it may be another server: check the address, or leave out the "
    "user";
}  // namespace

void Handshake::begin(const ConnectRequest& request) {
  request_ = request;
  request_.user = credentials_ ? credentials_->user : 0;
  has_proof_ = false;
  refusal_.clear();
  named_primary_.clear();
}

Handshake::Hello Handshake::hello() const {
  Hello hello;
  encode(request_, hello);
  return hello;
}

Status Handshake::on_refused(const Error& error, const rdma::Rejection& rejection) {
  if (error.code != Code::kRejected) return std::unexpected(error);
  const Bytes reason =
      Bytes(rejection.reason).first(std::min(rejection.length, sizeof rejection.reason));
  // Only padding: no program read the request. A connection manager rejects pending requests this
  // way when their program ends. The next server may accept us.
  if (std::ranges::all_of(reason, [](std::byte b) { return b == std::byte{0}; })) {
    return fail(Code::kUnreachable,
                "the connection was refused without a reason: shutting down, or not a kvserver");
  }
  const auto reject = decode_connect_reject(reason);
  if (!reject) return std::unexpected(reject.error());
  if (!asks_for_challenge() || !reject->challenge) return reason_of(*reject, rejection.called);
  prove(*reject->challenge, rejection.called);
  return {};
}

void Handshake::prove(const Challenge& challenge, const std::string& called) {
  request_.stamp = challenge.stamp;
  cookie_ = challenge.cookie;
  called_ = called;
  request_.proof = make_proof(credentials_->keys, claim());
  has_proof_ = true;
}

Claim Handshake::claim() const {
  return {.stamp = request_.stamp,
          .cookie = cookie_,
          .user = request_.user,
          .nonce = request_.client_nonce,
          .session_to_resume = request_.session_to_resume,
          .credits_wanted = request_.credits_field(),
          .server = called_};
}

Status Handshake::reason_of(const ConnectReject& reject, const std::string& called) {
  refusal_ = std::string(reject.text);
  if (reject.code == Code::kVersionMismatch) {
    return fail(Code::kVersionMismatch, "the server speaks another version of rkv");
  }
  if (reject.code == Code::kNotPrimary) {
    named_primary_ = std::string(reject.primary);
    return fail(Code::kNotPrimary, "the server is a backup of its group");
  }
  if (reject.code == Code::kBusy || reject.code == Code::kOutOfMemory) {
    return fail(Code::kBusy, "the server accepts no clients at the moment");
  }
  if (reject.challenge) {  // the answer to a proof: its challenge was too old
    return fail(Code::kBusy, "the proof of the user reached the server too late");
  }
  if (reject.code == Code::kUnauthenticated) {
    if (credentials_ && !called.empty())
      refusal_ += fmt::format(" (this client called {})", called);
    return fail(Code::kUnauthenticated, "the server refused the connection");
  }
  return fail(Code::kRejected, "the server refused the connection");
}

Result<ConnectAccept> Handshake::on_accepted(Bytes bytes) const {
  if (asks_for_challenge()) return fail(Code::kUnauthenticated, kNoUsers);
  auto accept = decode_connect_accept(bytes);
  if (!accept || !credentials_) return accept;
  if (!accept->answer) return fail(Code::kUnauthenticated, kNoUsers);
  const Proof expected =
      make_answer(credentials_->keys.stored, claim(), bytes.first(kConnectAnswerOffset));
  if (!equals_secret(*accept->answer, expected)) {
    return fail(Code::kUnauthenticated,
                "the server does not know this user's secret: it may be another server");
  }
  return accept;
}

}  // namespace rkv::client
