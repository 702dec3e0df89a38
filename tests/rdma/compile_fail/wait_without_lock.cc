// expect: calling function 'wait' requires holding mutex 'mutex_' exclusively
// only: clang
// needs: common/mutex.h

class Gate {
 public:
  void pass() {
    rkv::MutexLock lock(mutex_);
#ifdef RKV_WRONG
    lock.unlock();
#endif
    while (!is_open_)
      opened_.wait(mutex_);
  }
  void open() {
    {
      const rkv::MutexLock lock(mutex_);
      is_open_ = true;
    }
    opened_.notify_all();
  }

 private:
  rkv::Mutex mutex_;
  rkv::ConditionVariable opened_;
  bool is_open_ RKV_GUARDED_BY(mutex_) = false;
};

void use(Gate& gate) {
  gate.open();
  gate.pass();
}
