#include "tests/history/other_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace rkv::history {

OtherServer::OtherServer(OtherHost& host, std::string arguments)
    : host_(host),
      arguments_(std::move(arguments)),
      address_(OtherHost::address() + ":20001"),
      directory_(host.run("mktemp -d")) {
  directory_.erase(directory_.find('\n'));
  start();
}

void OtherServer::start() {
  process_ = std::make_unique<testing_support::Process>(
      std::vector<std::string>{
          "/run/softroce/node2", "sh", "-c",
          fmt::format(
              "echo process $$.; exec {} --no-auth --listen {} --memory 64MiB --data-dir {} {}",
              RKV_KVSERVER, address_, directory_, arguments_)},
      std::vector<std::string>{"KVSERVER_CHECK_MEMORY=on"});
  ASSERT_TRUE(process_->wait_for_output("kvserver ready", 240)) << process_->output();
  const std::string output = process_->output();
  const std::size_t at = output.find("process ") + 8;
  pid_ = output.substr(at, output.find('.', at) - at);
}

void OtherServer::signal(const std::string& name) {
  host_.run("kill -" + name + " " + pid_);
}

void OtherServer::kill() {
  signal("KILL");
  EXPECT_EQ(process_->wait().status, 128 + SIGKILL) << process_->output();
}

void OtherServer::suspend() {
  signal("STOP");
}
void OtherServer::go_on() {
  signal("CONT");
}

void OtherServer::stop_and_check() {
  signal("TERM");
  const auto ended = process_->wait();
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_NE(ended.output.find("memory checked"), std::string::npos) << ended.output;
}

}  // namespace rkv::history
