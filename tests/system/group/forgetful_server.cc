// A kvserver whose disk is a model that forgets what was not synced (disk_model.h).
//
//   forgetful_server honest|lying [option of kvserver ...]
//
// SIGUSR1 takes its power: it writes what its disk still has into the directory DATA_DIR.left,
// which it makes, and ends with status 0, without a word to anybody. A replica that has lost its
// place in its group ends with status 3. What it had written is safe from then on.
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "server/program/logging.h"
#include "server/program/options.h"
#include "server/server.h"
#include "tests/server/persistence/disk_model.h"

namespace rkv::server {
namespace {

using test::DiskModel;

Result<rdma::ServerTransports> open_shm(const Options&) {
  return rdma::choose_for_server({.kind = rdma::TransportKind::kShm});
}

// Whether the power was lost within this time.
bool power_lost_within(Nanos nanos, const sigset_t& signals) {
  const timespec timeout{.tv_sec = 0, .tv_nsec = static_cast<long>(nanos)};
  return ::sigtimedwait(&signals, nullptr, &timeout) == SIGUSR1;
}

int run(DiskModel::Honesty honesty, const Options& options) {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::filesystem::create_directories(options.data_dir);
  // It is written past the model, and its holder has ended.
  std::filesystem::remove(options.data_dir + "/LOCK");
  const auto disk = std::make_shared<DiskModel>(options.data_dir, honesty);
  // Long enough that the power often goes during one.
  disk->set_sync_time(std::chrono::milliseconds(3));
  const RawClock clock;
  Server server(options, clock, open_shm);
  server.use_database_env(test::env_on(disk));
  if (const auto failure = server.start()) {
    log_error(EventName("failed"), "{}", failure->sentence);
    return failure->exit_code;
  }
  while (!server.ended()) {
    if (power_lost_within(server.tick_every(), signals)) {
      disk->lose_power_after(0);
      const std::string left = options.data_dir + ".left";
      std::filesystem::create_directories(left);
      Random random(std::random_device{}());
      disk->leave(random, left);
      ::_exit(0);
    }
    server.tick();
  }
  log_warn(EventName("ended"), "{}", server.ended()->failure.sentence);
  (void)server.stop();
  return 3;
}

}  // namespace
}  // namespace rkv::server

int main(int argc, char** argv) {
  RKV_CHECK(argc > 2, "forgetful_server honest|lying [option of kvserver ...]");
  const auto honesty = std::string(argv[1]) == "lying"
                           ? rkv::server::test::DiskModel::Honesty::kLyingAboutFiles
                           : rkv::server::test::DiskModel::Honesty::kHonest;
  const auto parsed = rkv::server::parse_options(
      {argv + 2, argv + argc}, [](const char* name) { return std::getenv(name); });
  RKV_CHECK(!parsed.done, "the options are those of a kvserver that serves");
  ::umask(0077);
  rkv::server::install_log_sink(parsed.options.log_level, parsed.options.log_format);
  return rkv::server::run(honesty, parsed.options);
}
