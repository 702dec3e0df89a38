#include "rkv/rdma/address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <string>

#include "common/clock.h"
#include "tests/support/manual_clock.h"

namespace rkv::rdma {
namespace {

Deadline soon() {
  static const SteadyClock clock;
  return Deadline::after_ms(clock, 10'000);
}

TEST(HostPort, ParsesWhatPeopleWrite) {
  EXPECT_EQ(parse_host_port("example.org:7471").value(), (HostPort{"example.org", 7471}));
  EXPECT_EQ(parse_host_port("192.0.2.1:0").value(), (HostPort{"192.0.2.1", 0}));
  EXPECT_EQ(parse_host_port("[2001:db8::1]:65535").value(), (HostPort{"2001:db8::1", 65535}));
  EXPECT_EQ(parse_host_port("[fe80::1%eth0]:1").value(), (HostPort{"fe80::1%eth0", 1}));
  EXPECT_EQ(parse_host_port(":7471").value(), (HostPort{"", 7471}));
}

TEST(HostPort, RefusesWhatCouldMeanTwoThings) {
  for (const char* wrong :
       {"", "host", "host:", "host:x", "host:65536", "host:-1", "host:+1", "host: 1", "host:1 ",
        "2001:db8::1:7471", "[2001:db8::1]", "[2001:db8::1:7471", "2001:db8::1]:7471", "[]:1",
        "[host]:1", "[192.0.2.1]:1", "host:99999999999999999999"}) {
    const auto parsed = parse_host_port(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument) << wrong;
    EXPECT_NE(parsed.error().text, nullptr) << wrong;
  }
}

TEST(HostPort, PrintsWhatItParses) {
  for (const char* text : {"example.org:7471", "192.0.2.1:0", "[2001:db8::1]:65535", ":1"}) {
    EXPECT_EQ(parse_host_port(text).value().to_string(), text);
  }
}

TEST(SocketAddress, NumericAddressesResolveWithoutANameServer) {
  const auto v4 = resolve({"192.0.2.7", 7471}, soon()).value();
  ASSERT_EQ(v4.size(), 1U);
  EXPECT_EQ(v4[0].to_string(), "192.0.2.7:7471");
  EXPECT_FALSE(v4[0].is_wildcard());
  const auto v6 = resolve({"2001:db8::7", 7471}, soon()).value();
  ASSERT_EQ(v6.size(), 1U);
  EXPECT_EQ(v6[0].to_string(), "[2001:db8::7]:7471");
  EXPECT_EQ(v6[0].length(), sizeof(sockaddr_in6));
}

TEST(SocketAddress, NamesResolveToo) {
  const auto all = resolve({"localhost", 7471}, soon());
  ASSERT_TRUE(all) << to_string(all.error());
  EXPECT_EQ(all->front().port(), 7471);
}

TEST(SocketAddress, ANameServerIsNotWaitedForBeyondTheDeadline) {
  const ManualClock clock;
  // The deadline has passed: the call does not wait for the resolver. Numeric addresses need no
  // wait.
  const auto named = resolve({"no-such-host.invalid", 1}, Deadline(clock, 0));
  ASSERT_FALSE(named);
  EXPECT_TRUE(named.error().code == Code::kTimeout || named.error().code == Code::kUnreachable);
  EXPECT_TRUE(resolve({"192.0.2.7", 1}, Deadline(clock, 0)));
}

TEST(SocketAddress, EmptyHostIsEveryLocalAddress) {
  const auto all = resolve({"", 7471}, soon()).value();
  ASSERT_FALSE(all.empty());
  for (const SocketAddress& address : all)
    EXPECT_TRUE(address.is_wildcard());
}

TEST(SocketAddress, PortCanBeChanged) {
  SocketAddress address = resolve({"192.0.2.7", 1}, soon()).value()[0];
  address.set_port(65535);
  EXPECT_EQ(address.port(), 65535);
  EXPECT_EQ(address.host(), "192.0.2.7");
}

TEST(SocketAddress, OtherFamiliesBecomeEmpty) {
  sockaddr other{};
  other.sa_family = AF_UNIX;
  EXPECT_TRUE(SocketAddress::from(&other).empty());
  EXPECT_TRUE(SocketAddress().empty());
  EXPECT_EQ(SocketAddress().port(), 0);
}

TEST(SocketAddress, KnowsThisHostsAddresses) {
  for (const char* own : {"127.0.0.1", "127.9.9.9", "0.0.0.0", "::"})
    EXPECT_TRUE(is_this_host(resolve({own, 1}, soon()).value().front())) << own;
  for (const char* foreign : {"203.0.113.9", "2001:db8::7"})
    EXPECT_FALSE(is_this_host(resolve({foreign, 1}, soon()).value().front())) << foreign;
}

}  // namespace
}  // namespace rkv::rdma
