// Which users a server lets in, and which servers a client trusts. Each side runs as a user of its
// own in a child process, which only root can arrange.
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "tests/rdma/transport/shm/harness.h"

namespace rkv::rdma::shm {
namespace {

using contract::need;

constexpr uid_t kServerUser = 54001;
constexpr uid_t kClientUser = 54002;
constexpr gid_t kGroup = 54003;
constexpr gid_t kOtherGroup = 54004;

struct User {
  uid_t uid;
  gid_t gid;
  std::vector<gid_t> groups{};
};

// Exit codes of a child: what a connection came to.
constexpr int kConnected = 0;
constexpr int kRefused = 1;
constexpr int kOther = 2;

class Child {
 public:
  Child(const User& user, const std::function<int()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    const bool changed = setgroups(user.groups.size(), user.groups.data()) == 0 &&
                         setgid(user.gid) == 0 && setuid(user.uid) == 0;
    _exit(changed ? body() : 64);
  }
  ~Child() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  bool has_ended() {
    if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = -1;
    return pid_ < 0;
  }
  int status() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1; }

 private:
  pid_t pid_;
  int status_ = 0;
};

int connect_from(const std::string& directory, std::uint16_t port) {
  const auto transport = open_shm({.directory = directory});
  if (!transport) return kOther;
  const auto queue = (*transport)->create_queue({});
  if (!queue) return kOther;
  const SteadyClock clock;
  const auto made = (*transport)
                        ->connect(**queue, {}, "127.0.0.1:" + std::to_string(port), {},
                                  Deadline::after_ms(clock, contract::kPatienceMs), nullptr);
  if (made) return kConnected;
  return made.error().code == Code::kPermission ? kRefused : kOther;
}

class ShmUsers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become others";
    ASSERT_EQ(chmod(directory_.path().c_str(), 0755), 0);
  }
  // Returns the outcome for a client of `user` at a server of ours that admits `group`.
  int outcome(const std::string& group, const User& user) {
    const auto transport = need(open_shm({.directory = directory_.path(), .group = group}));
    const auto queue = need(transport->create_queue({}));
    const auto listener = need(transport->listen(":0"));
    const SteadyClock clock;
    const Deadline deadline = Deadline::after_ms(clock, 2 * contract::kPatienceMs);
    Child client(user, [&] { return connect_from(directory_.path(), listener->port()); });
    std::vector<std::unique_ptr<Connection>> connections;
    while (!client.has_ended() && !deadline.passed()) {
      const auto incoming = need(listener->next(Deadline::after_ms(clock, 10)));
      if (incoming == nullptr) continue;
      connections.push_back(need(incoming->accept(*queue, {}, {}, deadline)));
    }
    return client.status();
  }

  TemporaryDirectory directory_;
};

TEST_F(ShmUsers, WithoutAGroupARootServerIsForRoot) {
  EXPECT_EQ(outcome("", {.uid = 0, .gid = 0}), kConnected);
  EXPECT_EQ(outcome("", {.uid = kClientUser, .gid = kGroup}), kRefused);
  EXPECT_EQ(outcome("", {.uid = kClientUser, .gid = 0}), kRefused) << "root's group is not root";
}

TEST_F(ShmUsers, AGroupsMembersReachARootServer) {
  const std::string group = std::to_string(kGroup);
  EXPECT_EQ(outcome(group, {.uid = kClientUser, .gid = kGroup}), kConnected);
  EXPECT_EQ(outcome(group, {.uid = kClientUser, .gid = kOtherGroup, .groups = {7, kGroup, 9}}),
            kConnected);
  EXPECT_EQ(outcome(group, {.uid = kClientUser, .gid = kOtherGroup, .groups = {7, 9}}), kRefused);
  EXPECT_EQ(outcome(group, {.uid = 0, .gid = 0}), kConnected);
}

TEST_F(ShmUsers, TheSocketIsTheGroupsWhateverTheUmask) {
  const mode_t before = umask(0077);
  const std::string made = directory_.path() + "/made";
  const auto transport = need(open_shm({.directory = made, .group = std::to_string(kGroup)}));
  const auto listener = need(transport->listen(":0"));
  umask(before);
  struct stat status{};
  ASSERT_EQ(stat(socket_path(made, listener->port()).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0660U);
  EXPECT_EQ(status.st_gid, kGroup);
  ASSERT_EQ(stat(made.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0710U);
  EXPECT_EQ(status.st_gid, kGroup);
}

TEST_F(ShmUsers, AGroupThatIsNotThereIsAnError) {
  const auto transport = open_shm({.directory = directory_.path(), .group = "no-such-group-here"});
  ASSERT_FALSE(transport);
  EXPECT_EQ(transport.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(open_shm({.directory = directory_.path(), .group = "root"}));
}

// A server of a user without power, with the port that it found on `out`.
int serve(const std::string& directory, const std::string& group, int out) {
  const auto transport = open_shm({.directory = directory, .group = group});
  if (!transport) return kOther;
  const auto queue = (*transport)->create_queue({});
  auto listener = (*transport)->listen(":0");
  if (!queue || !listener) return kOther;
  const std::uint16_t port = (*listener)->port();
  if (write(out, &port, sizeof port) != sizeof port) return kOther;
  const SteadyClock clock;
  std::vector<std::unique_ptr<Connection>> connections;
  for (;;) {
    auto incoming = (*listener)->next(Deadline::after_ms(clock, 1000));
    if (!incoming || *incoming == nullptr) continue;
    auto made = (*incoming)->accept(**queue, {}, {}, Deadline::after_ms(clock, 1000));
    if (made) connections.push_back(std::move(*made));
  }
}

int outcome_of(const User& user, const std::string& directory, std::uint16_t port) {
  Child client(user, [&] { return connect_from(directory, port); });
  const SteadyClock clock;
  const Deadline deadline = Deadline::after_ms(clock, 2 * contract::kPatienceMs);
  while (!client.has_ended() && !deadline.passed())
    usleep(1000);
  return client.status();
}

TEST_F(ShmUsers, AServerIsTrustedByRootAndItsGroupInItsOwnDirectoryAlone) {
  ASSERT_EQ(chown(directory_.path().c_str(), kServerUser, kGroup), 0);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const Fd in(pipe_ends[0]);
  const Fd out(pipe_ends[1]);
  const Child server({.uid = kServerUser, .gid = kGroup},
                     [&] { return serve(directory_.path(), std::to_string(kGroup), out.get()); });
  std::uint16_t port = 0;
  ASSERT_EQ(read(in.get(), &port, sizeof port), ssize_t{sizeof port});
  const User member{.uid = kClientUser, .gid = kGroup};
  EXPECT_EQ(outcome_of({.uid = kServerUser, .gid = kGroup}, directory_.path(), port), kConnected);
  EXPECT_EQ(outcome_of({.uid = 0, .gid = 0}, directory_.path(), port), kConnected);
  EXPECT_EQ(outcome_of(member, directory_.path(), port), kConnected);
  // The server is as it was, but now it might be anybody's.
  ASSERT_EQ(chown(directory_.path().c_str(), kOtherGroup, kGroup), 0);
  EXPECT_EQ(outcome_of(member, directory_.path(), port), kRefused);
  EXPECT_EQ(outcome_of({.uid = 0, .gid = 0}, directory_.path(), port), kRefused);
}

// Any user can make /tmp/rkv-UID before the user of that number does.
TEST_F(ShmUsers, ADefaultDirectoryOfAStrangerIsNotTrusted) {
  const std::string squatted = "/tmp/rkv-" + std::to_string(kClientUser);
  ASSERT_EQ(mkdir(squatted.c_str(), 0755), 0) << squatted << " is of a former run, or in use";
  const std::unique_ptr<const char, void (*)(const char*)> removed(
      squatted.c_str(), [](const char* path) { std::filesystem::remove_all(path); });
  ASSERT_EQ(chown(squatted.c_str(), kServerUser, kGroup), 0);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const Fd in(pipe_ends[0]);
  const Fd out(pipe_ends[1]);
  const Child server({.uid = kServerUser, .gid = kGroup},
                     [&] { return serve(squatted, std::to_string(kGroup), out.get()); });
  std::uint16_t port = 0;
  ASSERT_EQ(read(in.get(), &port, sizeof port), ssize_t{sizeof port});
  const User victim{.uid = kClientUser, .gid = kGroup};
  EXPECT_EQ(outcome_of(victim, squatted, port), kConnected) << "the victim names it itself";
  EXPECT_EQ(outcome_of(victim, "", port), kRefused);
  ASSERT_EQ(chmod(squatted.c_str(), 0777), 0);
  EXPECT_EQ(outcome_of(victim, "", port), kRefused);
  // The victim's own directory, with a stranger's server in it: of which only root can be the
  // cause.
  ASSERT_EQ(chmod(squatted.c_str(), 0755), 0);
  ASSERT_EQ(chown(squatted.c_str(), kClientUser, kGroup), 0);
  EXPECT_EQ(outcome_of(victim, "", port), kRefused);
}

TEST(ShmDirectories, ARelativeOneIsRefused) {
  EXPECT_EQ(open_shm({.directory = "here"}).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace rkv::rdma::shm
