/* Log and lease together: what GETs and writes answer through a take-over, in one assertion.
 *
 * log.pml has no time, and lease.pml has no terms of entries. Here three replicas have both: logs
 * that are replicated, marks, cuts, sets in etcd, leases, waits, tick lines, admission. Server 0 is
 * the primary of term 1; server 1 may take over from it, and server 2 from server 1. A client calls
 * GET again and again at any primary whose process has not ended, deposed or not.
 *
 * The one assertion is `observe`: the answers of writers and of GETs agree on one history. An entry
 * that was answered at a position is the only one there, and no GET answers an older one than was
 * answered before the GET began. So nothing answered is lost, no deposed primary shows a past, no
 * two primaries show two futures. The key's value is the newest entry.
 *
 * Time and messages are as in lease.pml. Merged: reading t, comparing the lease and writing the line
 * (lease.pml shows that the order matters; a line that is written at once can be READ at more
 * moments). Left out: ends of processes (log.pml), except of a primary that finds another term; it
 * does not come back. Reads of the engine by a new primary are requests and carry t.
 *
 * accept CHANGES=1 WRITES=2: one take-over
 * accept WRITES=1: a take-over, and a change of the set
 * accept IN_SYNC=3 CHANGES=2 WRITES=1: the third replica joins
 * accept CHANGES=3 WRITES=1: two take-overs and a change
 * accept HAND_OVER CHANGES=2 WRITES=1: a primary hands over
 * accept-long HAND_OVER CHANGES=3 WRITES=1: two hand-overs or take-overs, and a change
 * accept-long HAND_OVER CHANGES=2 WRITES=2: a hand-over with two writes
 * accept-long CHANGES=3 WRITES=2: the same with two writes
 * accept-long L=2 WRITES=1: a longer lease
 * reject ACT_AT_ONCE WRITES=1: the new primary does not wait until its promise is over
 * reject NO_TICK WRITES=1: a GET is believed without the tick line
 * reject NO_MARGIN WRITES=1: lease and wait are equally long, so drift is not covered
 * reject SHOW_ABOVE_MARK WRITES=1: a GET answers what the mark has not passed
 * reject ADMIT_AT_ONCE CHANGES=1 WRITES=1: a new primary admits clients when it acts
 * reject ADMIT_AT_MARK CHANGES=1 WRITES=1: a new primary admits clients before what it inherited is in its engine
 * reject SHRINK_EARLY WRITES=1: the view is smaller before the removal is known
 * reject EXEMPT_LATE WRITES=1 IN_SYNC=1: a primary alone needs no lease until it knows that the transaction succeeded
 * reject JOIN_NO_WAIT WRITES=1 IN_SYNC=1: a joiner does not wait since it learnt that it is in sync
 * reject NO_CUT WRITES=2: a survivor keeps what the new primary does not have
 * reject HAND_OVER RELEASED_EARLY WRITES=1: a primary hands over while a tick still covers calls
 * reject HAND_OVER TICKS_ON WRITES=1: a primary that has handed over ticks as long as its lease lasts
 * reject HAND_OVER TOLD_FOR_EVER WRITES=1: a backup does not wait although another primary came after the one that told it
 */
#ifndef WRITES
#define WRITES 2
#endif
#ifndef CHANGES
#define CHANGES 2 /* transactions that succeed */
#endif
#ifndef IN_SYNC
#define IN_SYNC 7
#endif
#ifndef L
#define L 1
#endif
#define W 1
#ifdef NO_MARGIN
#define LEASE (L + 1)
#else
#define LEASE L
#endif
#define POSITIONS 2
#define B(r) (1 << (r))
#define TERM(x, i) (((x) >> (2 * (i) - 2)) & 3)
#define FIRST(x, n) ((x) & ((1 << (2 * (n))) - 1))
#define LENGTH(x) (((x) > 3) -> 2 : ((x) > 0 -> 1 : 0))

byte log[3], mark[3];
byte term[3] = 1;
bool acting[3];
byte view[3];
#ifdef EXEMPT_LATE
byte lease_view[3];
#define LEASE_VIEW(p) lease_view[p]
#define SET_LEASE_VIEW(p) lease_view[p] = view[p]
#else
#define LEASE_VIEW(p) view[p]
#define SET_LEASE_VIEW(p) skip
#endif
bool behind[3];
byte inherited[3], engine[3]; /* of a primary: where its term began; what its engine shows */
byte answer[9]; /* [3p+b]: 1 + the position that b has answered to p in p's term */
byte lease[9];  /* [3p+b]: what is left of b's promise, by p's clock */
byte wait[3];
bool knows[3];  /* that it is in sync */

byte c_term = 1, c_primary, c_set = IN_SYNC, changes;
byte tx[3]; /* a transaction that is not over: 8 + the new set, or 1: take-over */

#ifdef HAND_OVER
bool leaves[3]; /* a primary that hands over: it writes no tick */
bool has_told[3];
byte told[3]; /* the term of the primary that has told this backup to act */
#ifdef TICKS_ON
#define TICKS(p) true
#else
#define TICKS(p) (!leaves[p])
#endif
#ifdef TOLD_FOR_EVER
#define TOLD(b) (told[b] > 0)
#else
#define TOLD(b) (told[b] > 0 && told[b] == c_term - 1)
#endif
#else
#define TICKS(p) true
#define TOLD(b) false
#endif

byte line[3]; /* t + W - now */
bool line_covers[3]; /* it covers the beginning of the GET under way */

/* The GET. phase 0: idle, 1: called, 2: record READ, 3: the mark has passed it. */
byte phase, at_, v, v_term, since;
bool covered;

byte answered[POSITIONS + 1]; /* the term of the entry that was answered */
byte settled, writes;

hidden byte n;

inline observe(position, entry, older) {
  assert(position >= older &&
    (position == 0 || answered[position] == 0 || answered[position] == entry));
  if :: position > 0 -> answered[position] = entry :: else fi;
  if :: position > settled -> settled = position :: else fi
}

/* ---- time ---- */

#define LESS(x) if :: x > 0 -> x-- :: else fi
inline clock() {
  d_step {
    LESS(lease[1]); LESS(lease[2]); LESS(lease[5]); LESS(wait[1]); LESS(wait[2]);
    LESS(line[0]); LESS(line[1]); LESS(line[2])
  }
}

/* ---- the log ---- */

#if defined(ADMIT_AT_ONCE)
#define ADMITTED(p) true
#elif defined(ADMIT_AT_MARK)
#define ADMITTED(p) (mark[p] >= inherited[p])
#else
#define ADMITTED(p) (engine[p] >= inherited[p])
#endif

inline write_(p) {
  d_step {
    acting[p] && ADMITTED(p) && writes < WRITES && LENGTH(log[p]) < POSITIONS ->
    writes++; n = LENGTH(log[p]); log[p] = log[p] | (term[p] << (2 * n)); n = 0
  }
}
inline end_of_process(p) {
  acting[p] = false; view[p] = 0; behind[p] = false; inherited[p] = 0; engine[p] = 0; mark[p] = 0;
  log[p] = 0; tx[p] = 0;
  answer[3*p] = 0; answer[3*p+1] = 0; answer[3*p+2] = 0;
  lease[3*p] = 0; lease[3*p+1] = 0; lease[3*p+2] = 0; line[p] = 0; line_covers[p] = false;
  SET_LEASE_VIEW(p);
#ifdef HAND_OVER
  leaves[p] = false;
#endif
  if :: phase && at_ == p -> end_call() :: else fi
}
inline common_length(p, b) {
  n = 0;
  do
  :: n < POSITIONS && TERM(log[p], n + 1) && TERM(log[p], n + 1) == TERM(log[b], n + 1) -> n++
  :: else -> break
  od
}
#define OBEYS(b, p) (acting[p] && !acting[b] && term[b] <= term[p])
inline message(p, b) {
  d_step {
    OBEYS(b, p) && (answer[3*p+b] == 0 || LENGTH(log[b]) < LENGTH(log[p])) ->
    common_length(p, b);
#ifdef NO_CUT
    if :: LENGTH(log[b]) > n -> n = LENGTH(log[b]) :: else fi;
    log[b] = log[b] | ((n < LENGTH(log[p])) -> TERM(log[p], n + 1) << (2 * n) : 0);
    if :: n < LENGTH(log[p]) -> n++ :: else fi;
#else
    if :: n < LENGTH(log[p]) -> n++ :: else fi;
    log[b] = FIRST(log[p], n);
#endif
    if :: mark[b] > n -> mark[b] = n :: else fi;
    term[b] = term[p]; wait[b] = L;
    if :: answer[3*p+b] < n + 1 -> answer[3*p+b] = n + 1 :: else fi;
    n = 0
  }
}
inline tell_mark(p, b) {
  d_step {
    OBEYS(b, p) && answer[3*p+b] && term[b] == term[p] && mark[b] < mark[p] &&
      mark[b] < LENGTH(log[b]) ->
    mark[b] = (mark[p] < LENGTH(log[b]) -> mark[p] : LENGTH(log[b])); wait[b] = L
  }
}
#define HAS_NEXT(p, b) (!(view[p] & B(b)) || b == p || answer[3*p+b] > mark[p] + 1)
inline raise_mark(p) { /* and answer the writer */
  d_step {
    acting[p] && mark[p] < LENGTH(log[p]) && HAS_NEXT(p, 0) && HAS_NEXT(p, 1) && HAS_NEXT(p, 2) ->
    mark[p]++;
    observe(mark[p], TERM(log[p], mark[p]), 0)
  }
}
inline apply(p) {
  d_step {
    acting[p] && engine[p] < mark[p] && engine[p] < inherited[p] ->
    engine[p]++
  }
}

/* ---- leases ---- */

inline promise(p, b, d) {
  d_step {
    OBEYS(b, p) && answer[3*p+b] && term[b] == term[p] && d <= LEASE &&
      (wait[b] < L || lease[3*p+b] < LEASE - d) ->
    wait[b] = L;
    if :: lease[3*p+b] < LEASE - d -> lease[3*p+b] = LEASE - d :: else fi
  }
}
#define PROMISED(p, b) (b == p || !(LEASE_VIEW(p) & B(b)) || lease[3*p+b] >= W)
inline tick(p) {
  d_step {
    acting[p] && TICKS(p) && (line[p] < W || (phase && !line_covers[p])) && PROMISED(p, 0) && PROMISED(p, 1) &&
      PROMISED(p, 2) ->
    line[p] = W; line_covers[p] = (phase > 0)
  }
}

/* ---- the configuration ---- */

#define MAY_CHANGE(p) \
  (acting[p] && !behind[p] && term[p] == c_term && tx[p] == 0 && changes < CHANGES)
inline remove_(p, b) {
  d_step {
    MAY_CHANGE(p) && (view[p] & B(b)) -> tx[p] = 8 + (view[p] & (7 - B(b)));
#ifdef SHRINK_EARLY
    view[p] = tx[p] - 8
#endif
  }
}
inline add(p, b) {
  d_step {
    MAY_CHANGE(p) && !(view[p] & B(b)) && answer[3*p+b] > mark[p] && answer[3*p+b] > inherited[p] ->
    view[p] = view[p] | B(b); tx[p] = 8 + view[p]
  }
}
inline learn(p) {
  d_step {
    acting[p] && behind[p] ->
    if
    :: c_term > term[p] -> end_of_process(p)
    :: else -> view[p] = c_set; behind[p] = false; SET_LEASE_VIEW(p)
    fi
  }
}
inline know(b) {
  d_step {
    (c_set & B(b)) && !knows[b] && !acting[b] -> knows[b] = true;
#ifndef JOIN_NO_WAIT
    wait[b] = L
#endif
  }
}
#define MAY_TAKE_OVER(b) \
  (!acting[b] && tx[b] == 0 && knows[b] && (c_set & B(b)) && c_term == b && changes < CHANGES)
inline candidate(b) { d_step { MAY_TAKE_OVER(b) -> tx[b] = 1 } }
#define NOTICE(b) if :: !(c_set & B(b)) -> knows[b] = false :: else fi
inline commit(r) {
  d_step {
    tx[r] -> changes++;
    if
    :: tx[r] == 1 ->
       c_term++;
       c_set = c_set & (7 - B(c_primary)); c_primary = r
    :: else -> c_set = tx[r] - 8
    fi;
    NOTICE(1); NOTICE(2);
    tx[0] = 0; tx[1] = 0; tx[2] = 0; behind[0] = acting[0]; behind[1] = acting[1];
    behind[2] = acting[2]
  }
}
#ifdef ACT_AT_ONCE
#define WAITED(b) true
#else
#define WAITED(b) (wait[b] == 0)
#endif
inline act(b) {
  d_step {
    !acting[b] && c_primary == b && c_term > term[b] && (WAITED(b) || TOLD(b)) ->
    acting[b] = true; term[b] = c_term; view[b] = c_set; inherited[b] = LENGTH(log[b]);
    engine[b] = 0; wait[b] = 0;
    SET_LEASE_VIEW(b)
  }
}

/* ---- a hand-over ---- */

#ifdef HAND_OVER
inline hand_over(p) { d_step { acting[p] && !leaves[p] -> leaves[p] = true } }
inline go_on(p) { d_step { leaves[p] && !has_told[p] -> leaves[p] = false } }
#ifdef RELEASED_EARLY
#define NO_TICK_COVERS(p) true
#else
#define NO_TICK_COVERS(p) (line[p] == 0)
#endif
inline tell(p, b) {
  d_step {
    leaves[p] && acting[p] && !has_told[p] && NO_TICK_COVERS(p) && !behind[p] && tx[p] == 0 &&
      (view[p] & B(b)) && OBEYS(b, p) ->
    has_told[p] = true; told[b] = term[p]
  }
}
#endif

/* ---- a GET ---- */

inline end_call() {
  phase = 0; at_ = 0; v = 0; v_term = 0; since = 0; covered = false;
  line_covers[0] = false; line_covers[1] = false; line_covers[2] = false
}
inline call() {
  d_step {
    phase == 0 -> phase = 1; since = settled;
    line_covers[0] = (line[0] > 0); line_covers[1] = (line[1] > 0); line_covers[2] = (line[2] > 0)
  }
}
inline read_record(p) { /* from memory what was written in this term, else from the engine */
  d_step {
    phase == 1 && acting[p] && ADMITTED(p) ->
    at_ = p; v = (LENGTH(log[p]) > inherited[p] -> LENGTH(log[p]) : engine[p]);
    v_term = (v > 0 -> TERM(log[p], v) : 0);
#ifdef SHOW_ABOVE_MARK
    phase = 3
#else
    phase = 2
#endif
  }
}
inline read_mark() { d_step { phase == 2 && mark[at_] >= v -> phase = 3 } }
inline read_line() { d_step { phase >= 2 && !covered && line_covers[at_] -> covered = true } }
#ifdef NO_TICK
#define BELIEVED true
#else
#define BELIEVED covered
#endif
inline answer_() { d_step { phase == 3 && BELIEVED -> observe(v, v_term, since); end_call() } }
inline give_up() { d_step { phase -> end_call() } }

#define EACH(f) :: f(0) :: f(1) :: f(2)
#define DOWN(f) :: f(0, 1) :: f(0, 2) :: f(1, 2)
#define DOWN_AGED(f, d) :: f(0, 1, d) :: f(0, 2, d) :: f(1, 2, d)
proctype world() {
end:
  do
  :: clock()
  EACH(write_) DOWN(message) DOWN(tell_mark) EACH(raise_mark) :: apply(1) :: apply(2)
  DOWN_AGED(promise, 0) DOWN_AGED(promise, 1)
#if L == 2
  DOWN_AGED(promise, 2)
#endif
  EACH(tick)
  DOWN(remove_) DOWN(add) :: learn(0) :: learn(1) :: know(1) :: know(2)
  :: candidate(1) :: candidate(2) EACH(commit) :: act(1) :: act(2)
#ifdef HAND_OVER
  :: hand_over(0) :: hand_over(1) :: go_on(0) :: go_on(1) DOWN(tell)
#endif
  :: call() EACH(read_record) :: read_mark() :: read_line() :: answer_() :: give_up()
  od
}

init {
  d_step {
    acting[0] = true; view[0] = IN_SYNC; knows[1] = (IN_SYNC & 2) > 0; knows[2] = (IN_SYNC & 4) > 0;
    SET_LEASE_VIEW(0)
  }
  run world()
}
