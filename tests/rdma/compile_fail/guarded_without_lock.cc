// expect: writing variable 'count_' requires holding mutex 'mutex_' exclusively
// only: clang
// needs: common/mutex.h

class Counter {
 public:
  void add() {
#ifndef RKV_WRONG
    const rkv::MutexLock lock(mutex_);
#endif
    ++count_;
  }

 private:
  rkv::Mutex mutex_;
  int count_ RKV_GUARDED_BY(mutex_) = 0;
};

void use(Counter& counter) {
  counter.add();
}
