/* A group's log: who may become primary, what may be answered, what may be on a disk, who may join.
 *
 * Three replicas, without time: an in-sync replica may try to become primary at any moment, so
 * nothing here rests on leases (lease.pml). A log is a list of entries; an entry is its term, and
 * two entries of one position and one term are the same.
 *
 * Modelled: a message is "the next entry of the primary's log", at any time (delayed, or lost with
 * its connection); its answer may be used at any later time, but not after either process has ended;
 * etcd as a register whose transactions compare the revision, are applied at any time after they
 * were sent, also after their sender has ended, or never, and whose outcomes are learnt at any later
 * time; processes that end and start again from their disks; joiners; the loss of all in-sync
 * processes. An entry counts as answered as soon as a mark has passed it: somebody may have read it.
 *
 * A set of processes is a byte: bit r says that it names replica r, bit r+4 that the process it
 * names has ended. Only the second half is knowledge that no host has: it stands for the comparison
 * of the epoch in the set with the epoch of the process that runs.
 *
 * Left out: leases, reads and time; contents; how long a log is kept (a joiner gets what it lacks).
 *
 * accept CRASHES=0: no process ends
 * accept: one process ends and starts again from its disk
 * accept IN_SYNC=1: a primary alone ends and is joined
 * accept NO_SHRINK CRASHES=2 WRITES=1 NO_SYNC ALL_SURVIVE: two of three end one after the other
 * accept TERM_OF_LAST_ENTRY CHANGES=3 WRITES=1: a replica that has started obeys no lower term than its disk's last entry has
 * accept ANSWERS_BY_NAME: a primary may count answers by name, if the term is on the disk
 * accept PRIMARY_DISK_ABOVE_MARK JOIN_ABOVE_DISK CHANGES=3 WRITES=1: the primary's disk may be above the mark, if nobody joins with a disk above it
 * accept-long CRASHES=2 CHANGES=4 WRITES=1: two ends, four transactions
 * accept-long WRITES=2 CHANGES=4 NO_SYNC: four transactions
 * accept-long PRIMARY_DISK_ABOVE_MARK JOIN_ABOVE_DISK CHANGES=4 WRITES=1 CRASHES=2: the primary's disk above the mark
 * accept-long TERM_OF_LAST_ENTRY CHANGES=4 WRITES=1 CRASHES=2: the term of the last entry
 * accept-long ANSWERS_BY_NAME CHANGES=4 WRITES=1 CRASHES=2: answers by name
 * reject IN_SYNC_ME NO_SHRINK CRASHES=2 WRITES=1 NO_SYNC ALL_SURVIVE: a take-over removes all others from in_sync
 * reject SHRINK_EARLY CRASHES=0: answers stop waiting for a replica before its removal is known
 * reject DISK_ABOVE_MARK: a backup's disk takes what is above the mark
 * reject JOIN_EARLY IN_SYNC=3 CRASHES=0: a joiner is added before it has what was answered
 * reject JOIN_AT_MARK CRASHES=2 CHANGES=3: a joiner lacks what the primary inherited and cannot judge
 * reject JOIN_UNSYNCED IN_SYNC=1 CRASHES=2 CHANGES=3 WRITES=1: a joiner has not synced what was answered as synced
 * reject OWN_SYNC_MARK CRASHES=2 CHANGES=3 WRITES=1: a new primary takes what its disk has for synced in the group
 * reject JOIN_VIEW_LATE IN_SYNC=3 CRASHES=0: answers wait for a joiner only after the transaction
 * reject TIMEOUT_IS_FAILURE IN_SYNC=3 CRASHES=0: a transaction without an outcome is taken for one that failed
 * reject NO_INCARNATION: in_sync is a set of names
 * reject TERM_FORGOTTEN CHANGES=3 WRITES=1: a replica that has started obeys any term, and lets a deposed primary empty it
 * reject TERM_OF_LAST_ENTRY ANSWERS_BY_NAME: the term of the last entry alone, and answers by name
 * reject PRIMARY_DISK_ABOVE_MARK CRASHES=0 CHANGES=3 WRITES=1: the primary's disk takes what is above the mark
 * reject LOWER_TERM CRASHES=0: a backup takes messages of a lower term
 * reject NO_PREVIOUS CRASHES=0: a backup appends without comparing the entry before
 * reject NO_HISTORY IN_SYNC=1 CHANGES=3: a joiner's log is compared by position alone
 * reject DROP_TO_MARK CRASHES=0: a survivor cuts its log at the mark it knows
 * reject TERM_EARLY CRASHES=0: a candidate uses a term before it has read it from etcd
 */
#ifndef WRITES
#define WRITES 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef CHANGES
#define CHANGES 2 /* transactions that succeed */
#endif
#ifndef IN_SYNC
#define IN_SYNC 7
#endif
#define POSITIONS 3
#define TERMS 3
#define NOBODY 3
#define B(r) (1 << (r))
#define DEAD(r) (16 << (r))
#define NAMES(set, r) ((set) & B(r))
#define RUNS(set, r) (((set) & B(r)) && !((set) & DEAD(r)))
#define WITHOUT(set, r) ((set) & (255 - B(r) - DEAD(r)))

/* A log: two bits a position, the entry's term; 0: there is none. */
#define TERM(x, i) (((x) >> (2 * (i) - 2)) & 3)
#define FIRST(x, n) ((x) & ((1 << (2 * (n))) - 1))
#define LENGTH(x) (((x) > 15) -> 3 : (((x) > 3) -> 2 : ((x) > 0 -> 1 : 0)))

byte log[3], mark[3];
byte disk[3]; /* entries that the disk has, synced */
byte term[3] = 1;
bool acting[3]; /* as primary of term[] */
byte view[3];   /* who is in sync, as far as this primary knows or fears */
bool behind[3]; /* etcd has changed since this primary read it */
byte inherited[3]; /* where its term began */
byte answer[9];    /* [3p+b]: 1 + the position that b's process has answered in p's term; 0: none */

byte c_term = 1, c_primary, c_set = IN_SYNC, changes;
byte tx[3];    /* a transaction that is not over: 1 take-over, 2 the new set, 3 started again */
byte tx_set[3];

byte answered[POSITIONS + 1]; /* the term of the entry that was answered */
byte answered_synced;         /* positions that were answered as synced */
byte from_disk; /* the last term that began with what was on a disk: memory is lost, as promised */
byte writes, crashes;

hidden byte i, n, k;

inline end_of_primary(p) {
  acting[p] = false; view[p] = 0; behind[p] = false; inherited[p] = 0;
  answer[3*p] = 0; answer[3*p+1] = 0; answer[3*p+2] = 0
}
/* Its memory is gone. What comes back is what the disk has. */
inline end_of_process(r) {
  end_of_primary(r);
  log[r] = FIRST(log[r], disk[r]); mark[r] = disk[r];
  answer[r] = 0; answer[3+r] = 0; answer[6+r] = 0;
#if defined(TERM_FORGOTTEN)
  term[r] = 0;
#elif defined(TERM_OF_LAST_ENTRY)
  term[r] = (disk[r] -> TERM(log[r], disk[r]) : 0);
#endif
#ifndef NO_INCARNATION
  if :: NAMES(c_set, r) -> c_set = c_set | DEAD(r) :: else fi;
  k = 0;
  do
  :: k < 3 ->
     if :: NAMES(tx_set[k], r) -> tx_set[k] = tx_set[k] | DEAD(r) :: else fi;
     if :: NAMES(view[k], r) -> view[k] = view[k] | DEAD(r) :: else fi;
     k++
  :: else -> break
  od;
#endif
  k = 0
}

/* ---- the log ---- */

inline write_(p) {
  d_step {
    acting[p] && writes < WRITES && LENGTH(log[p]) < POSITIONS ->
    writes++; n = LENGTH(log[p]); log[p] = log[p] | (term[p] << (2 * n)); n = 0
  }
}
inline common_length(p, b) { /* n: as far as both logs are the same */
  n = 0;
  do
  :: n < POSITIONS && TERM(log[p], n + 1) && TERM(log[p], n + 1) == TERM(log[b], n + 1) -> n++
  :: else -> break
  od
}
#ifdef LOWER_TERM
#define OBEYS(b, p) true
#else
#define OBEYS(b, p) (term[b] <= term[p])
#endif
inline message(p, b) { /* the first of a term or of a connection, or the next entry */
  d_step {
    acting[p] && OBEYS(b, p) && !(acting[b] && term[b] >= term[p]) &&
      (term[b] != term[p] || answer[3*p+b] == 0 || LENGTH(log[b]) < LENGTH(log[p])) ->
    if :: acting[b] -> end_of_process(b) :: else fi;
    common_length(p, b);
#ifdef NO_PREVIOUS
    n = LENGTH(log[b]);
    if :: n < LENGTH(log[p]) -> log[b] = log[b] | (TERM(log[p], n + 1) << (2 * n)); n++ :: else fi;
#else
    if
    :: disk[b] > n ->
       /* It has entries that this primary never had. An engine cannot forget: empty it, copy. */
#ifndef LOWER_TERM
       assert(!(c_term == term[p] && RUNS(c_set, b))); /* never a copy that counts */
#endif
#ifdef NO_HISTORY
       n = (disk[b] < LENGTH(log[p]) -> disk[b] : LENGTH(log[p]))
#else
       disk[b] = 0; mark[b] = 0; n = 0
#endif
    :: else
    fi;
#ifdef DROP_TO_MARK
    if
    :: term[b] < term[p] ->
       n = (mark[b] < n -> mark[b] : n); n = (disk[b] > n -> disk[b] : n)
    :: else
    fi;
#endif
    if :: mark[b] > n -> mark[b] = n :: else fi;
#ifdef NO_HISTORY
    log[b] = FIRST(log[b], n) | (n < LENGTH(log[p]) -> TERM(log[p], n + 1) << (2 * n) : 0);
    if :: n < LENGTH(log[p]) -> n++ :: else fi;
#else
    if :: n < LENGTH(log[p]) -> n++ :: else fi;
    log[b] = FIRST(log[p], n);
#endif
#endif
    term[b] = term[p];
    if :: answer[3*p+b] < n + 1 -> answer[3*p+b] = n + 1 :: else fi;
    n = 0
  }
}
inline tell_mark(p, b) {
  d_step {
    acting[p] && term[b] == term[p] && !acting[b] && answer[3*p+b] && mark[b] < mark[p] &&
      mark[b] < LENGTH(log[b]) ->
    mark[b] = (mark[p] < LENGTH(log[b]) -> mark[p] : LENGTH(log[b]))
  }
}
#ifdef ANSWERS_BY_NAME
#define COUNTS(p, b) true
#else
#define COUNTS(p, b) !(view[p] & DEAD(b))
#endif
#define HAS_NEXT(p, b) \
  (!NAMES(view[p], b) || b == p || (COUNTS(p, b) && answer[3*p+b] > mark[p] + 1))
inline raise_mark(p) {
  d_step {
    acting[p] && from_disk <= term[p] && mark[p] < LENGTH(log[p]) && HAS_NEXT(p, 0) &&
      HAS_NEXT(p, 1) && HAS_NEXT(p, 2) ->
    mark[p]++;
    n = TERM(log[p], mark[p]);
    assert(answered[mark[p]] == 0 || answered[mark[p]] == n); /* one history */
    answered[mark[p]] = n;
    k = 0;
    do /* a primary of a later term has it */
    :: k < 3 -> assert(!(acting[k] && term[k] > term[p]) || TERM(log[k], mark[p]) == n); k++
    :: else -> break
    od;
    k = 0; n = 0
  }
}
#define SYNCED_NEXT(p, b) \
  (!NAMES(view[p], b) || (disk[b] > answered_synced && \
   (b == p || (COUNTS(p, b) && answer[3*p+b] && term[b] == term[p]))))
inline answer_synced(p) {
  d_step {
    acting[p] && from_disk <= term[p] && answered_synced < mark[p] && SYNCED_NEXT(p, 0) &&
      SYNCED_NEXT(p, 1) && SYNCED_NEXT(p, 2) ->
    answered_synced++
  }
}
#if defined(DISK_ABOVE_MARK)
#define MAY_SAVE(r) true
#elif defined(PRIMARY_DISK_ABOVE_MARK)
#define MAY_SAVE(r) (acting[r] || disk[r] < mark[r])
#else
#define MAY_SAVE(r) (disk[r] < mark[r])
#endif
inline save(r) { d_step { disk[r] < LENGTH(log[r]) && MAY_SAVE(r) -> disk[r]++ } }
inline crash(r) { d_step { crashes < CRASHES -> crashes++; end_of_process(r) } }

/* ---- the configuration ---- */

#define MAY_CHANGE(p) \
  (acting[p] && !behind[p] && term[p] == c_term && tx[p] == 0 && changes < CHANGES)
inline remove_(p, b) {
  d_step {
    MAY_CHANGE(p) && NAMES(view[p], b) -> tx[p] = 2; tx_set[p] = WITHOUT(view[p], b);
#ifdef SHRINK_EARLY
    view[p] = tx_set[p]
#endif
  }
}
#if defined(JOIN_EARLY)
#define CAUGHT_UP(p, b) true
#elif defined(JOIN_AT_MARK)
#define CAUGHT_UP(p, b) (answer[3*p+b] > mark[p])
#else
#define CAUGHT_UP(p, b) (answer[3*p+b] > mark[p] && answer[3*p+b] > inherited[p])
#endif
#ifdef JOIN_UNSYNCED
#define CAUGHT_UP_ON_DISK(b) true
#else
#define CAUGHT_UP_ON_DISK(b) (disk[b] >= answered_synced)
#endif
#ifdef JOIN_ABOVE_DISK
#define MAY_JOIN(p, b) (mark[p] >= disk[b])
#else
#define MAY_JOIN(p, b) true
#endif
inline add(p, b) {
  d_step {
    MAY_CHANGE(p) && !NAMES(view[p], b) && answer[3*p+b] && term[b] == term[p] && CAUGHT_UP(p, b) &&
      CAUGHT_UP_ON_DISK(b) && MAY_JOIN(p, b) ->
    tx[p] = 2; tx_set[p] = view[p] | B(b);
#ifndef JOIN_VIEW_LATE
    view[p] = view[p] | B(b)
#endif
  }
}
inline learn(p) {
  d_step {
    acting[p] && behind[p] ->
    if
    :: c_term > term[p] -> end_of_process(p)
    :: else -> view[p] = c_set; behind[p] = false
    fi
  }
}
#ifdef TIMEOUT_IS_FAILURE
inline give_up(p) {
  d_step {
    MAY_CHANGE(p) || (acting[p] && !behind[p] && tx[p] == 2) ->
    view[p] = c_set
  }
}
#endif
inline candidate(r) {
  d_step {
    !acting[r] && tx[r] == 0 && RUNS(c_set, r) && c_primary != r && c_term < TERMS &&
      changes < CHANGES ->
    tx[r] = 1; tx_set[r] = B(r)
  }
}
inline started_again(r) {
  d_step {
    !acting[r] && tx[r] == 0 && NAMES(c_set, r) && (c_set & DEAD(r)) && changes < CHANGES &&
      c_term < TERMS ->
    tx[r] = 3; tx_set[r] = B(r)
  }
}
inline commit(r) {
  d_step {
    tx[r] -> changes++;
    if
    :: tx[r] == 1 ->
       c_term++;
#ifdef IN_SYNC_ME
       c_set = 0;
#else
       if :: c_primary != NOBODY -> c_set = WITHOUT(c_set, c_primary) :: else fi;
#endif
       c_set = WITHOUT(c_set, r) | tx_set[r]; c_primary = r
    :: tx[r] == 2 -> c_set = tx_set[r] | (c_set & 112 & (tx_set[r] << 4))
    :: tx[r] == 3 ->
       if
       :: (c_set & 7) == B(r) -> c_term++; c_primary = r; c_set = tx_set[r]; from_disk = c_term
       :: else ->
          c_set = WITHOUT(c_set, r);
          if :: c_primary == r -> c_primary = NOBODY :: else fi
       fi
    fi;
    /* The revision has changed: all others fail. */
    tx[0] = 0; tx[1] = 0; tx[2] = 0; tx_set[0] = 0; tx_set[1] = 0; tx_set[2] = 0;
    behind[0] = acting[0]; behind[1] = acting[1]; behind[2] = acting[2]
  }
}
inline begin_term(r, t, set) {
  term[r] = t; acting[r] = true; view[r] = set; inherited[r] = LENGTH(log[r])
}
inline act(r) {
  d_step {
    !acting[r] && c_primary == r && RUNS(c_set, r) && c_term > term[r] ->
    begin_term(r, c_term, c_set);
#ifdef OWN_SYNC_MARK
    answered_synced = (answered_synced < disk[r] -> disk[r] : answered_synced);
#endif
    i = 1;
    do
    :: i <= POSITIONS ->
       if
       :: answered[i] && TERM(log[r], i) != answered[i] ->
#ifdef ALL_SURVIVE
          assert(false);
#else
          assert(from_disk == c_term && i > answered_synced); /* what was answered is lost */
#endif
          answered[i] = 0
       :: else
       fi;
       i++
    :: else -> break
    od;
    i = 0
  }
}
#ifdef TERM_EARLY
inline act_early(r) {
  d_step {
    !acting[r] && tx[r] == 1 ->
    begin_term(r, c_term + 1, WITHOUT(c_set, c_primary))
  }
}
#endif

#define EACH(f) :: f(0) :: f(1) :: f(2)
#define PAIRS(f) :: f(0, 1) :: f(0, 2) :: f(1, 0) :: f(1, 2) :: f(2, 0) :: f(2, 1)
proctype world() {
end:
  do
  EACH(write_) PAIRS(message) PAIRS(tell_mark) EACH(raise_mark) EACH(save) EACH(crash)
#ifndef NO_SYNC
  EACH(answer_synced)
#endif
#ifndef NO_SHRINK
  PAIRS(remove_)
#endif
  PAIRS(add) EACH(learn) EACH(candidate) EACH(started_again) EACH(commit) EACH(act)
#ifdef TIMEOUT_IS_FAILURE
  EACH(give_up)
#endif
#ifdef TERM_EARLY
  EACH(act_early)
#endif
  od
}

init {
  d_step { acting[0] = true; view[0] = IN_SYNC }
  run world()
}
