#include "server/group/connection/replica_tls.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>

#include <array>
#include <utility>

#include "common/parse.h"
#include "server/group/rules/encoding.h"

namespace rkv::server {

namespace {

constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kCipherNumber = {0x13, 0x01};

// An end that only receives, such as the receiver of a copy, would never see that the other end's
// host is gone. So its kernel sends keep-alive probes. TCP_USER_TIMEOUT is not set: it would also
// end a connection whose other end waits for its disk and takes nothing meanwhile.
constexpr int kAskAfterSeconds = 5;
constexpr int kAskAgainAfterSeconds = 2;
constexpr int kQuestions = 3;

void notice_silence(asio::ip::tcp::socket& socket) {
  // If the kernel refuses an option, it only notices the loss later.
  const auto set = [&socket](int option, int value) {
    (void)::setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_KEEPIDLE, kAskAfterSeconds);
  set(TCP_KEEPINTVL, kAskAgainAfterSeconds);
  set(TCP_KEEPCNT, kQuestions);
  asio::error_code ignored;
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
}

// Where a context keeps the secret. Asio uses the context's own pointer to data itself.
int secret_index() {
  static const int index = SSL_CTX_get_ex_new_index(
      0, nullptr, nullptr, nullptr, [](void*, void* secret, CRYPTO_EX_DATA*, int, long, void*) {
        delete static_cast<GroupSecret*>(secret);
      });
  return index;
}

const GroupSecret& secret_of(SSL* ssl) {
  return *static_cast<const GroupSecret*>(
      SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), secret_index()));
}

// OpenSSL takes a pre-shared key as a session that can be resumed. nullptr: out of memory.
SSL_SESSION* session_of(SSL* ssl) {
  const Bytes key = secret_of(ssl).bytes();
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kCipherNumber.data());
  SSL_SESSION* const session = SSL_SESSION_new();
  if (session == nullptr) return nullptr;
  if (cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                  key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* length,
              SSL_SESSION** session) {
  const std::string_view ours = secret_of(ssl).identity();  // static
  *identity = reinterpret_cast<const unsigned char*>(ours.data());
  *length = ours.size();
  *session = session_of(ssl);
  return *session != nullptr ? 1 : 0;
}

int find_key(SSL* ssl, const unsigned char* identity, std::size_t length, SSL_SESSION** session) {
  *session = nullptr;
  if (std::string_view(reinterpret_cast<const char*>(identity), length) !=
      secret_of(ssl).identity())
    return 0;
  *session = session_of(ssl);
  return *session != nullptr ? 1 : 0;
}

// The name of the replicas' protocol in the handshake (ALPN): its length, then its bytes.
const std::string& offered_protocol() {
  static const std::string offered = [] {
    const std::string name = fmt::format("rkv-replication/{}", kReplicationVersion);
    return static_cast<char>(name.size()) + name;
  }();
  return offered;
}

int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* chosen_length,
                    const unsigned char* offered, unsigned offered_length, void*) {
  const std::string& ours = offered_protocol();
  // OpenSSL's own function takes a pointer to non-const bytes, but only reads them.
  auto* found = const_cast<unsigned char*>(*chosen);
  if (SSL_select_next_proto(
          &found, chosen_length, reinterpret_cast<const unsigned char*>(ours.data()),
          static_cast<unsigned>(ours.size()), offered, offered_length) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

ReplicaTls::ReplicaTls(Side side)
    : side_(side),
      context_(side == Side::kClient ? asio::ssl::context::tlsv13_client
                                     : asio::ssl::context::tlsv13_server) {}

Result<std::shared_ptr<ReplicaTls>> ReplicaTls::make(const GroupSecret& secret, Side side) {
  std::shared_ptr<ReplicaTls> tls(new ReplicaTls(side));
  SSL_CTX* const context = tls->context_.native_handle();
  auto kept = std::make_unique<GroupSecret>(secret);
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kCipher) != 1 || SSL_CTX_set_num_tickets(context, 0) != 1 ||
      SSL_CTX_set_ex_data(context, secret_index(), kept.get()) != 1)
    return fail(Code::kUnsupported, "OpenSSL here has no TLS 1.3 with TLS_AES_128_GCM_SHA256");
  (void)kept.release();  // the context's from here on
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  // No certificate is accepted: replicas have no certificate authority.
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  if (side == Side::kClient) {
    const std::string& protocol = offered_protocol();
    if (SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(protocol.data()),
                                static_cast<unsigned>(protocol.size())) != 0)
      return fail(Code::kInternal, "OpenSSL takes no name for a protocol");
    SSL_CTX_set_psk_use_session_callback(context, offer_key);
  } else {
    // Where certificates are checked, OpenSSL needs a name for sessions to resume.
    const auto* const name = reinterpret_cast<const unsigned char*>("rkv");
    if (SSL_CTX_set_session_id_context(context, name, 3) != 1)
      return fail(Code::kInternal, "OpenSSL takes no name for a session");
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
    SSL_CTX_set_psk_find_session_callback(context, find_key);
  }
  return tls;
}

EncryptedStream::EncryptedStream(asio::ip::tcp::socket socket, std::shared_ptr<ReplicaTls> with)
    : tls(std::move(with)), stream(std::move(socket), tls->context()) {
  asio::error_code error;
  peer = to_text(this->socket().remote_endpoint(error));
  local = to_text(this->socket().local_endpoint(error));
  this->socket().set_option(asio::ip::tcp::no_delay(true), error);
  notice_silence(this->socket());
}

bool EncryptedStream::is_proved() {
  return SSL_session_reused(stream.native_handle()) == 1;
}

bool EncryptedStream::is_of_our_version() {
  const unsigned char* name = nullptr;
  unsigned length = 0;
  SSL_get0_alpn_selected(stream.native_handle(), &name, &length);
  return std::string_view(reinterpret_cast<const char*>(name), length) ==
         std::string_view(offered_protocol()).substr(1);
}

void EncryptedStream::close() {
  asio::error_code ignored;
  socket().close(ignored);
}

std::string to_text(const asio::ip::tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return fmt::format(fmt::runtime(endpoint.address().is_v6() ? "[{}]:{}" : "{}:{}"), host,
                     endpoint.port());
}

bool split_address(const std::string& address, std::string& host, std::string& port) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  host = address.substr(0, colon);
  port = address.substr(colon + 1);
  const bool in_brackets = host.starts_with('[') && host.ends_with(']');
  if (in_brackets) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!in_brackets && host.find(':') != std::string::npos)) return false;
  return parse_number<std::uint16_t>(port).has_value();
}

}  // namespace rkv::server
