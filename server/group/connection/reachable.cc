#include "server/group/connection/reachable.h"

#include <asio/connect.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <cstdint>

#include "common/parse.h"

namespace rkv::server {

bool is_reachable(const std::string& address, std::chrono::milliseconds limit) {
  const std::size_t colon = address.rfind(':');
  const auto port = parse_number<std::uint16_t>(address.substr(colon + 1), 1, 65534);
  if (!port) return false;
  std::string host = address.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  asio::io_context io;
  asio::error_code error;
  const auto found = asio::ip::tcp::resolver(io).resolve(host, std::to_string(*port + 1), error);
  if (error) return false;
  asio::ip::tcp::socket socket(io);
  bool connected = false;
  asio::async_connect(
      socket, found,
      [&](const asio::error_code& failed, const asio::ip::tcp::endpoint&) { connected = !failed; });
  io.run_for(limit);
  return connected;
}

}  // namespace rkv::server
