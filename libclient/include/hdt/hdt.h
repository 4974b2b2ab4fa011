/* hdt.h: the C interface of HDT, a communicator for clusters of unequal devices and NICs.
 *
 * A process joins a *group* of ranks (hdtCommInit...), gets a communicator, and calls operations on it.
 * All ranks of a group must call the same collectives in the same order; sends and receives between two
 * ranks match in call order. Ranks of one node work through shared memory. Nodes are connected by their
 * hdtcommd daemons. If none runs on a node, the first process there that needs a daemon hosts an equal
 * one.
 *
 * Results and errors
 * - Every call returns an hdtResult_t. HDT_SUCCESS is 0. hdtGetLastError() has the message.
 * - Wrong arguments are found before anything is begun: HDT_ERR_INVALID_ARGUMENT concerns the calling rank
 *   alone, and the communicator works as before. The other ranks do not hear of it: if the call was a
 *   collective, they wait for this rank until it makes the call, or until their deadline.
 * - Failure of one operation fails its communicator: every pending and later operation on it returns the
 *   same code on every rank, with a message that names the rank, operation and group. Other communicators
 *   go on. Destroy it and make a new one, or call hdtCommShrink. The codes of a failed communicator are
 *   HDT_ERR_SYSTEM, _INTERNAL, _DAEMON_LOST, _TIMEOUT, _MISMATCH, _RANK_LOST, _LINK, _ABORTED and, rarely,
 *   those of a daemon that cannot go on with the group.
 * - A limit of the process, its user, the daemon or the machine (descriptors, memory, threads) fails the
 *   call that meets it with HDT_ERR_SYSTEM and the limit's name, value and owner: a call that makes a
 *   group on all ranks of that group, any other operation with its communicator. Everything else goes on,
 *   and the call works again when there is room.
 *
 * Operations
 * - Counts are in elements, not bytes. Buffers hold at least the count documented at each call; they need
 *   no alignment. A count of 0 is allowed everywhere: the call still takes part in the order of calls, and
 *   its buffers may be NULL. A count times the number of ranks is at most 2^56.
 * - Operations take an hdtRequest_t*. NULL: the call returns when the operation is complete. Otherwise it
 *   returns at once, buffers must stay valid and untouched, and hdtWait or hdtTest completes the request.
 *   Operations progress without the caller. *request is written only if the call succeeds.
 * - In place: sendbuf == recvbuf (allreduce, reduce, broadcast), recvbuf == sendbuf + rank * count
 *   (reduce-scatter), sendbuf == recvbuf + rank * count (allgather), pointer arithmetic in elements. Other
 *   overlaps are not allowed.
 * - fp16, bf16 and fp8 sums within a node accumulate in fp32; across nodes every hop rounds once. The
 *   result is the same bits on every rank.
 * - An operation that is not complete at its deadline (hdtCommConfig_t.timeout_ms) fails its communicator
 *   with HDT_ERR_TIMEOUT. The daemons are asked for the cause first, which takes up to 4 seconds more.
 *
 * Handles
 * - Handles (hdtComm_t, hdtRequest_t) are no addresses, and no two of a process are the same value. An
 *   ended handle, or a value that never was one, can be told from a live one: every call with it returns
 *   HDT_ERR_INVALID_ARGUMENT and does nothing.
 *
 * Thread safety: every call may be made from any thread. Collectives of one communicator are ordered by
 * the order in which calls enter the library, so two threads that submit collectives on the same
 * communicator must agree on an order themselves. The same holds for the calls that make groups: all ranks
 * must make them in the same order. A variable of type hdtRequest_t is written without a lock: only one
 * thread at a time may pass its address. A call that another thread's hdtCommDestroy overtakes returns
 * HDT_ERR_INVALID_ARGUMENT, but what it was to do on other ranks is then missing there.
 *
 * fork(): a process that was forked after its parent's first call (data loaders do it) is no rank. As long
 * as it calls nothing it may do anything and end in any way, exit() included, at any moment, and the
 * parent's groups do not notice. Every call in it returns HDT_ERR_INVALID_USAGE and changes nothing,
 * hdtCommDestroy too. Workers that are to use HDT themselves are started by exec or posix_spawn, or forked
 * before the first call. Calls that need nothing of a group (hdtGetVersion, hdtGetErrorString,
 * hdtGetLastError, hdtTypeSize) work anywhere, and are no first call.
 */
#ifndef HDT_HDT_H
#define HDT_HDT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HDT_API __attribute__((visibility("default")))
#else
#define HDT_API
#endif

/* Version of this header, 10000 * major + 100 * minor + patch. hdtGetVersion returns that of the library. */
#define HDT_VERSION 100

/* Every failure has one of these codes. Values never change meaning between versions. Each call below names
 * the codes that it returns for reasons of its own; HDT_ERR_SYSTEM and HDT_ERR_INTERNAL are possible
 * everywhere. */
typedef enum {
  HDT_SUCCESS = 0,
  HDT_IN_PROGRESS = 1,          /* hdtTest: not complete yet; no failure */
  HDT_ERR_INVALID_ARGUMENT = 2, /* a null pointer, an ended handle, a rank out of range, an unknown type */
  HDT_ERR_INVALID_USAGE = 3,    /* a call that is not allowed now, e.g. in a forked process */
  HDT_ERR_SYSTEM = 4, /* the operating system refused something; the message names the limit, if it is one */
  HDT_ERR_INTERNAL = 5,    /* a bug in HDT: please report the message */
  HDT_ERR_NO_DAEMON = 6,   /* the daemon that was asked for does not answer at its socket */
  HDT_ERR_DAEMON_LOST = 7, /* the daemon ended while in use */
  HDT_ERR_VERSION = 8,     /* library and daemon, or two daemons, do not speak the same protocol */
  HDT_ERR_TIMEOUT = 9,     /* a deadline passed; the message names who had not come */
  HDT_ERR_MISMATCH = 10,   /* ranks called different things; the message names both calls */
  HDT_ERR_RANK_LOST = 11,  /* a rank of the group failed or departed; the message names it */
  HDT_ERR_LINK = 12,       /* no connection between two nodes works any more; the message names them */
  HDT_ERR_ABORTED = 13,    /* hdtCommAbort was called on some member */
  HDT_ERR_CONFIG = 14,     /* a configuration value is wrong; the message names file, line and key */
  HDT_ERR_NO_BACKEND = 15  /* the group's class has no backend that both nodes can use */
} hdtResult_t;

/* Element types. */
typedef enum {
  HDT_INT32 = 0,
  HDT_INT64 = 1,
  HDT_FLOAT16 = 2,  /* IEEE 754 binary16 */
  HDT_BFLOAT16 = 3, /* the upper 16 bits of a binary32 */
  HDT_FLOAT32 = 4,
  HDT_FLOAT64 = 5,
  HDT_INT8 = 6,
  HDT_UINT8 = 7,
  HDT_INT16 = 8,
  HDT_UINT16 = 9,
  HDT_UINT32 = 10,
  HDT_UINT64 = 11,
  HDT_FLOAT8E4M3 = 12, /* OCP 8-bit: 4 exponent bits, up to 448, no infinity */
  HDT_FLOAT8E5M2 = 13  /* OCP 8-bit: 5 exponent bits, up to 57,344: the upper half of a binary16 */
} hdtDataType_t;

/* Reductions. Average is sum / ranks; integers round toward zero. Integer sums (those of an average, too) and
 * products wrap around. A NaN contribution to min and max may or may not reach the result. A finite fp8
 * result beyond the largest number becomes the largest number; the other floats become infinite, also where
 * only the sum of an average is too large. More reductions: hdtRedOpCreatePreMulSum. */
typedef enum {
  HDT_SUM = 0,
  HDT_PROD = 1,
  HDT_MIN = 2,
  HDT_MAX = 3,
  HDT_AVG = 4,
  HDT_BAND = 6, /* bitwise AND, OR and exclusive OR: of integers only */
  HDT_BOR = 7,
  HDT_BXOR = 8,
  HDT_RED_OP_LARGEST = 0x7fffffff /* no reduction: the type holds what hdtRedOpCreatePreMulSum returns */
} hdtRedOp_t;

/* A rank's handle on a group, from a call that makes one until hdtCommDestroy. NULL is never a live
 * handle. */
typedef struct hdtComm* hdtComm_t;
/* An operation under way, from the call that began it until hdtWait or hdtTest has completed it. */
typedef struct hdtRequest* hdtRequest_t;

/* Names a group that is being made. Plain bytes: made by one process, sent to the others by any means. It
 * holds a secret: a process that has it may join the group. */
#define HDT_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[HDT_UNIQUE_ID_BYTES];
} hdtUniqueId_t;

/* How to make a communicator. Start from HDT_COMM_CONFIG_INIT; fields not set keep their defaults. Calls that
 * take one copy it, and accept NULL for all defaults. A size that is too small, a class of 0 or more than 31
 * bytes, or a negative timeout: HDT_ERR_INVALID_ARGUMENT. */
typedef struct {
  /* sizeof(hdtCommConfig_t), for compatibility: fields behind it are taken for defaults. */
  size_t size;
  /* [class.NAME] of the daemon's configuration; NULL: "default". 1 to 31 bytes. The same on all ranks. */
  const char* group_class;
  /* The daemon's socket; NULL: $HDT_SOCKET, then the system's, then embedded (see the user guide). */
  const char* socket;
  /* Deadline of making the group and of every operation on it, in ms, counted from the call; 0:
   * $HDT_TIMEOUT_MS, or 600,000. */
  int64_t timeout_ms;
  /* 1: reductions give the same bits however ranks sit on nodes, whatever a message's size and the number of
   * NICs: contributions are combined in the order of ranks and rounded once. Costs bandwidth between nodes,
   * and a thread of the process if the group has several nodes. The same on all ranks; a split group has its
   * parent's unless it is made with a config of its own. */
  int deterministic;
} hdtCommConfig_t;
#define HDT_COMM_CONFIG_INIT \
  { sizeof(hdtCommConfig_t), NULL, NULL, 0, 0 }

/* --- about the library -------------------------------------------------------------------------------- */

/* Sets *version to the library's version, encoded as HDT_VERSION. HDT_ERR_INVALID_ARGUMENT: version is NULL.
 */
HDT_API hdtResult_t hdtGetVersion(int* version);

/* A short constant text for a code, e.g. "a rank of the group was lost". Never NULL, whatever the number. */
HDT_API const char* hdtGetErrorString(hdtResult_t result);

/* The message of this thread's last failed call; "" if none failed. Calls that succeed do not change it. The
 * text is valid until the thread's next HDT call. */
HDT_API const char* hdtGetLastError(void);

/* --- groups ------------------------------------------------------------------------------------------- */

/* The calls that make a group block until all ranks have joined. If one rank cannot join, the call fails
 * on all ranks that have come. On failure *comm is NULL. Beside the codes that each call names:
 *   HDT_ERR_CONFIG         a variable or the configuration is wrong, or nodes have different ones
 *   HDT_ERR_NO_DAEMON      the daemon that was asked for does not answer, and none could be hosted
 *   HDT_ERR_DAEMON_LOST    the daemon ended while the group was made
 *   HDT_ERR_VERSION        library and daemon, or two daemons, are not of one release
 *   HDT_ERR_TIMEOUT        ranks had not come at the deadline; the message names them
 *   HDT_ERR_MISMATCH       a rank came twice, or ranks named different group sizes or classes
 *   HDT_ERR_RANK_LOST      a rank ended while the group was made
 *   HDT_ERR_LINK           two nodes cannot be connected
 *   HDT_ERR_NO_BACKEND     the class has no backend that both nodes can use
 * They may be called from several threads, but all ranks must make them in the same order. */

/* Makes an id for a new group, to be passed to hdtCommInitRank on each of its ranks. The ranks meet at the
 * daemon of the calling process, which is the one that a config of NULL leads to. That daemon must live until
 * the group is made (all ranks have returned from hdtCommInitRank), no longer. An id makes one group.
 * Errors: HDT_ERR_INVALID_ARGUMENT (id is NULL), _CONFIG, _NO_DAEMON, _DAEMON_LOST, _VERSION. */
HDT_API hdtResult_t hdtGetUniqueId(hdtUniqueId_t* id);

/* Makes of an id and a number another id: the same one wherever both are the same. So ranks that know one id,
 * and count alike, can make any number of groups by it. They meet where the ranks of `base` meet, and its
 * daemon must live for as long. Needs no daemon itself. `id` and `base` may be the same object.
 * HDT_ERR_INVALID_ARGUMENT: one is NULL, or `base` was not made by hdtGetUniqueId or by this call.
 * HDT_ERR_SYSTEM: the cryptography library refuses. */
HDT_API hdtResult_t hdtDeriveUniqueId(hdtUniqueId_t* id, const hdtUniqueId_t* base, uint64_t number);

/* Joins the group `id` of `nranks` ranks as `rank` (0 <= rank < nranks, at most 65,536 ranks). Returns when
 * all ranks have joined, or with HDT_ERR_TIMEOUT naming the ranks that have not. Config may be NULL.
 * HDT_ERR_INVALID_ARGUMENT: comm is NULL, the rank is out of range, the id was not made by hdtGetUniqueId, or
 * the config is wrong. HDT_ERR_INVALID_USAGE: the id's group exists already. If the group fails before this
 * call has returned, because a rank that has it already makes it fail, its failure. */
HDT_API hdtResult_t hdtCommInitRank(hdtComm_t* comm, int nranks, hdtUniqueId_t id, int rank,
                                    const hdtCommConfig_t* config);

/* Joins the group of the job this process was started in. Ranks come from the first of these that is set:
 *   HDT_RANK, HDT_SIZE; RANK, WORLD_SIZE where TORCHELASTIC_RUN_ID is set (torchrun, under whatever
 *   launcher); OMPI_COMM_WORLD_RANK, _SIZE (mpirun); PMIX_RANK with PMIx's job size; SLURM_PROCID,
 *   SLURM_STEP_NUM_TASKS or SLURM_NTASKS inside a step (srun); RANK, WORLD_SIZE. Inside the only task of a
 *   launcher (srun --pty bash, mpirun -np 1) RANK and WORLD_SIZE count. Where a launcher's variables and
 *   RANK, WORLD_SIZE contradict each other otherwise, HDT_ERR_CONFIG names both.
 * Where ranks meet: HDT_RENDEZVOUS=host:port (rank 0's daemon listens there); else PMIx, where its server is
 * (mpirun, srun --mpi=pmix); else MASTER_ADDR and MASTER_PORT + 1; else srun's first node. A host is a name
 * or an address of either family; all addresses of a name are tried. With none of these: a group of this one
 * process. Ranks that meet at an address are of one user. A second job at the address of a job that runs is
 * refused with HDT_ERR_INVALID_USAGE, which names that job. Jobs that have the same HDT_JOB_SECRET (any text,
 * the same on all ranks of a job) meet apart from all others. Where it is not set, one mpirun that spans
 * hosts and is the job's only launcher gives the job a secret: the random text that Open MPI draws for each
 * run.
 * hdtCommInit may be called several times; each call makes a group of its own, and the n-th calls of all
 * ranks belong together. HDT_ERR_CONFIG: a variable holds garbage, variables contradict each other, nothing
 * says where the ranks meet, or a host cannot be resolved. */
HDT_API hdtResult_t hdtCommInit(hdtComm_t* comm, const hdtCommConfig_t* config);

/* Splits a group: ranks that pass the same color (>= 0) form a new group, ordered by key, then by old
 * rank. Collective over `comm`, which must work and stays as it is: the call takes a place in its order of
 * collectives. HDT_SPLIT_NO_COLOR: this rank takes part in no new group, gets NULL, and does not wait for
 * the others' groups. A config of NULL keeps the parent's class, daemon, timeout and determinism.
 * HDT_ERR_INVALID_ARGUMENT: another negative color, newcomm is NULL, or the config is wrong. If `comm` has
 * failed, or fails before all have joined, its failure. If the new group fails before this call has returned,
 * the failure of the new group. */
#define HDT_SPLIT_NO_COLOR (-1)
HDT_API hdtResult_t hdtCommSplit(hdtComm_t comm, int color, int key, hdtComm_t* newcomm,
                                 const hdtCommConfig_t* config);

/* Makes a group of the ranks of `comm` without the `count` ranks in `excluded`, in their old order: a
 * group of the survivors, after some ranks have failed. Every rank that is not excluded calls it with the
 * same set; some of them may have made groups of `comm` without other ranks before. `comm` may have failed,
 * and keeps its state: its members have nothing to do but to call this. HDT_ERR_TIMEOUT after the new group's
 * timeout names the ranks that are missing; the call can then be repeated with more ranks excluded. A config
 * of NULL keeps the parent's class, daemon, timeout and determinism. HDT_ERR_INVALID_ARGUMENT: the count is
 * negative, or `excluded` is NULL with a count above 0, names a rank that the group does not have, or names
 * the calling rank. */
HDT_API hdtResult_t hdtCommShrink(hdtComm_t comm, const int excluded[], int count, hdtComm_t* newcomm,
                                  const hdtCommConfig_t* config);

/* Leaves the group and frees the handle. Waits until this rank's operations are complete or have failed;
 * other members may still be inside operations that need nothing more from this rank. An operation of another
 * member that does need it fails the group with HDT_ERR_RANK_LOST. Requests of this communicator stay valid
 * until hdtWait or hdtTest has completed them. NULL is allowed. HDT_ERR_INVALID_ARGUMENT: the handle was
 * destroyed before, by whichever thread. How the operations ended is no part of the result. */
HDT_API hdtResult_t hdtCommDestroy(hdtComm_t comm);

/* Ends all operations of the group on every member with HDT_ERR_ABORTED, unless the group has failed already.
 * It may be called while other threads are blocked in operations of the communicator, and returns without
 * waiting for them. Between nodes the daemons pass it on: until they have, an operation that every rank
 * calls may still complete. The handle still needs hdtCommDestroy. */
HDT_API hdtResult_t hdtCommAbort(hdtComm_t comm);

/* The deadline, in ms, of each operation that this rank begins from now on, in the place of the one that the
 * group was made with; operations under way keep theirs. Groups that are split off later inherit it. Any
 * thread. HDT_ERR_INVALID_ARGUMENT: an ended handle, or less than 1 ms. */
HDT_API hdtResult_t hdtCommSetTimeout(hdtComm_t comm, int64_t timeout_ms);

/* How many samples (or tokens) this rank takes in each step of the job from now on: `hdtctl status` shows it
 * beside the rank, and nothing depends on it. 0: not shown. Any thread. Does not block.
 * HDT_ERR_INVALID_ARGUMENT: an ended handle. */
HDT_API hdtResult_t hdtCommSetSamples(hdtComm_t comm, uint64_t samples);

/* Sets *async_error to HDT_SUCCESS while the group works, otherwise to the code of its failure.
 * hdtCommErrorMessage has the message. Does not block. HDT_ERR_INVALID_ARGUMENT: an ended handle, or
 * async_error is NULL. */
HDT_API hdtResult_t hdtCommGetAsyncError(hdtComm_t comm, hdtResult_t* async_error);

/* Why the communicator failed; "" while it works, and for NULL. Valid until hdtCommDestroy. Never NULL:
 * for an ended handle and in a forked process it is a constant text that says so. */
HDT_API const char* hdtCommErrorMessage(hdtComm_t comm);

/* The rank that the failure is about, such as the one that has failed. *rank is -1 while the communicator
 * works, and for a failure of no one rank. Ranks of several nodes may name different ones if several fail
 * at the same time. Does not block. HDT_ERR_INVALID_ARGUMENT: an ended handle, or rank is NULL. */
HDT_API hdtResult_t hdtCommFailedRank(hdtComm_t comm, int* rank);

/* The number of ranks, and this process's rank. These and the next two work on a failed communicator, too,
 * and do not block. HDT_ERR_INVALID_ARGUMENT: an ended handle, a NULL pointer, or a rank out of range. */
HDT_API hdtResult_t hdtCommCount(hdtComm_t comm, int* nranks);
HDT_API hdtResult_t hdtCommUserRank(hdtComm_t comm, int* rank);
/* The number of nodes of the group, and the node (0 <= node < nodes) on which `rank` runs. */
HDT_API hdtResult_t hdtCommNodes(hdtComm_t comm, int* nodes);
HDT_API hdtResult_t hdtCommNodeOf(hdtComm_t comm, int rank, int* node);

/* --- memory ------------------------------------------------------------------------------------------- */

/* Allocates `bytes` of memory that the ranks of a node and the daemon can share: ranks of one node work in
 * each other's buffers. Between nodes, if a rank is the only one of its group on its node, the daemon
 * sends from it and receives into it. Any other memory works too, and is copied. Large buffers that live
 * long gain most; the first operation of a group on an allocation registers it with the daemon and the
 * other ranks. The memory is zeroed and aligned to 4,096 bytes. Up to 4,096 allocations of a process can
 * be shared at a time. Forked children have the same memory, not a copy of it, and may use it; they cannot
 * free it. Every allocation has a descriptor until it is freed. HDT_ERR_INVALID_ARGUMENT: pointer is NULL,
 * or bytes is beyond half of the address space. HDT_ERR_SYSTEM: the system refuses; *pointer is NULL then. */
HDT_API hdtResult_t hdtMemAlloc(void** pointer, size_t bytes);
/* Frees memory of hdtMemAlloc. No operation may be using it any more. NULL is allowed.
 * HDT_ERR_INVALID_ARGUMENT: hdtMemAlloc did not give it, or it is freed already. */
HDT_API hdtResult_t hdtMemFree(void* pointer);

/* --- collectives -------------------------------------------------------------------------------------- */

/* All calls of this section return HDT_ERR_INVALID_ARGUMENT for an ended handle, an unknown type or
 * reduction, a bitwise reduction of floating-point numbers, a root out of range, a NULL buffer with a count
 * above 0, or a count that is too large. Ranks that make different calls, or calls with different counts,
 * types, reductions or roots, fail the communicator with HDT_ERR_MISMATCH. */

/* Size of an element in bytes; 0 for an unknown type. */
HDT_API size_t hdtTypeSize(hdtDataType_t type);

/* recvbuf[i] = op over ranks of sendbuf[i], i < count, on every rank. */
HDT_API hdtResult_t hdtAllReduce(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type,
                                 hdtRedOp_t op, hdtComm_t comm, hdtRequest_t* request);

/* As hdtAllReduce, on `root` only; recvbuf is not touched on the other ranks and may be NULL there. */
HDT_API hdtResult_t hdtReduce(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type,
                              hdtRedOp_t op, int root, hdtComm_t comm, hdtRequest_t* request);

/* recvbuf[i] = op over ranks of sendbuf[rank * recvcount + i], i < recvcount. sendbuf: nranks * recvcount. */
HDT_API hdtResult_t hdtReduceScatter(const void* sendbuf, void* recvbuf, size_t recvcount, hdtDataType_t type,
                                     hdtRedOp_t op, hdtComm_t comm, hdtRequest_t* request);

/* recvbuf[r * sendcount + i] = rank r's sendbuf[i]. recvbuf: nranks * sendcount. */
HDT_API hdtResult_t hdtAllGather(const void* sendbuf, void* recvbuf, size_t sendcount, hdtDataType_t type,
                                 hdtComm_t comm, hdtRequest_t* request);

/* recvbuf = root's sendbuf, on every rank. sendbuf is read on root only and may be NULL elsewhere. */
HDT_API hdtResult_t hdtBroadcast(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type,
                                 int root, hdtComm_t comm, hdtRequest_t* request);

/* The next four (hdtGather to hdtAllToAllV) are made of sends and receives: on one communicator they match
 * those of hdtSend and hdtRecv in call order, so a rank that calls them between its sends and receives must
 * do so in the same place as its peers. Different counts are found as messages of different sizes
 * (HDT_ERR_MISMATCH). A difference that leaves a message out altogether, such as another root, is found at
 * the deadline. */

/* root's recvbuf[r * sendcount + i] = rank r's sendbuf[i]. recvbuf: nranks * sendcount, on root only. In
 * place on root: sendbuf == recvbuf + root * sendcount. */
HDT_API hdtResult_t hdtGather(const void* sendbuf, void* recvbuf, size_t sendcount, hdtDataType_t type,
                              int root, hdtComm_t comm, hdtRequest_t* request);

/* recvbuf[i] = root's sendbuf[rank * recvcount + i]. sendbuf: nranks * recvcount, on root only. In place on
 * root: recvbuf == sendbuf + root * recvcount. */
HDT_API hdtResult_t hdtScatter(const void* sendbuf, void* recvbuf, size_t recvcount, hdtDataType_t type,
                               int root, hdtComm_t comm, hdtRequest_t* request);

/* recvbuf[r * count + i] = rank r's sendbuf[rank * count + i]. Both: nranks * count. In place (sendbuf ==
 * recvbuf) it works on a copy of sendbuf. */
HDT_API hdtResult_t hdtAllToAll(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type,
                                hdtComm_t comm, hdtRequest_t* request);

/* As hdtAllToAll with a count for every pair: to rank r go sendcounts[r] elements from sendbuf +
 * senddispls[r], from it come recvcounts[r] to recvbuf + recvdispls[r]. recvcounts[r] is rank r's
 * sendcounts[rank], else HDT_ERR_MISMATCH. Displacements are in elements. Arrays of nranks, not needed after
 * the call has returned. Not in place. HDT_ERR_INVALID_ARGUMENT also for a NULL array, and if a rank's two
 * counts for itself differ. */
HDT_API hdtResult_t hdtAllToAllV(const void* sendbuf, const size_t sendcounts[], const size_t senddispls[],
                                 void* recvbuf, const size_t recvcounts[], const size_t recvdispls[],
                                 hdtDataType_t type, hdtComm_t comm, hdtRequest_t* request);

/* recvbuf[recvdispls[r] + i] = rank r's sendbuf[i], i < recvcounts[r]. recvcounts must be the same on every
 * rank, recvdispls need not. Arrays of nranks, not needed after the call has returned. In place: sendbuf ==
 * recvbuf + recvdispls[rank]. */
HDT_API hdtResult_t hdtAllGatherV(const void* sendbuf, void* recvbuf, const size_t recvcounts[],
                                  const size_t recvdispls[], hdtDataType_t type, hdtComm_t comm,
                                  hdtRequest_t* request);

/* As hdtReduceScatter with a count for every rank: sendbuf holds the blocks one after the other,
 * recvcounts[r] elements for rank r. recvcounts must be the same on every rank. In place: recvbuf == this
 * rank's block of sendbuf. */
HDT_API hdtResult_t hdtReduceScatterV(const void* sendbuf, void* recvbuf, const size_t recvcounts[],
                                      hdtDataType_t type, hdtRedOp_t op, hdtComm_t comm,
                                      hdtRequest_t* request);

/* The counts by rank with which hdtReduceScatterV and hdtAllGatherV finish soonest, for programs that may
 * choose how much each rank holds (sharded parameters): counts[0] + ... + counts[nranks - 1] == count. All
 * are in elements of `type`; `counts` is an array of nranks.
 *
 * A node with a slow link has less to receive of an allgather the more it holds, so its ranks get more.
 * With n nodes, the rates b of their links in bytes a second, and the fractions w that they hold, each of
 * the two calls takes D max(w, 1 - w) / b seconds for D bytes, where the maximum is that over the nodes.
 * A reduce-scatter takes longer where a node combines at a rate below b: that rate stands for b then, if the
 * two calls together are faster by a tenth with it. The counts are those with the least time, and of these
 * the most even ones; ranks of one node share its fraction equally. With links of 1, 1, 1 and 0.5 and a rank
 * on each node the fractions are 1/6, 1/6, 1/6 and 1/2, and the calls take two thirds of the time that equal
 * counts take.
 *
 * The counts are equal, as far as `count` can be divided, where others would gain less than a tenth, where
 * the rates are not known (on one node, or with more than 32 nodes), and in deterministic groups. The
 * rates are those that the daemons measured when the group was made. Where nodes have different numbers of
 * ranks, the counts may differ although the links are alike. All ranks get the same counts, each
 * for itself: nothing is sent, and the answer stays the same for the life of the communicator. It is a
 * suggestion: the two calls take any counts. Works on a failed communicator, too. Any thread. Does not
 * block. HDT_ERR_INVALID_ARGUMENT: an ended handle, an unknown type, counts is NULL, or count is above
 * 2^56. A count of 0 gives zeros. */
HDT_API hdtResult_t hdtSuggestCounts(hdtComm_t comm, size_t count, hdtDataType_t type, size_t counts[]);

/* Creates a reduction that sums the contributions of all ranks, each multiplied by a number of its own:
 * *scalar, one element of `type`, which is read now. `op` can be passed to reducing calls on `comm` with that
 * type, until hdtRedOpDestroy or hdtCommDestroy. Every rank of such a call passes a reduction of this kind,
 * with any scalar; the creation itself is no collective. Products of integers wrap around. A call with an
 * `op` that was created for another type, or on another communicator: HDT_ERR_INVALID_ARGUMENT. */
HDT_API hdtResult_t hdtRedOpCreatePreMulSum(hdtRedOp_t* op, const void* scalar, hdtDataType_t type,
                                            hdtComm_t comm);
/* Ends a reduction. May be called as soon as the calls that use it have returned, even if their requests are
 * not complete. HDT_ERR_INVALID_ARGUMENT: `op` was not created on `comm`, or is destroyed already. */
HDT_API hdtResult_t hdtRedOpDestroy(hdtRedOp_t op, hdtComm_t comm);

/* Complete when every rank of the group has entered it. */
HDT_API hdtResult_t hdtBarrier(hdtComm_t comm, hdtRequest_t* request);

/* --- point to point ----------------------------------------------------------------------------------- */

/* Sends to / receives from `peer`. The n-th send from a to b matches the n-th receive at b from a; sizes in
 * bytes must be equal (else HDT_ERR_MISMATCH), types need not. A complete send means that sendbuf may change,
 * not that the message was received; a blocking send of a long message waits for its receiver. peer == own
 * rank is allowed if both are asynchronous or inside one group. HDT_ERR_INVALID_ARGUMENT: an ended handle, an
 * unknown type, a peer out of range, or a NULL buffer with a count above 0. A receive from a rank that
 * has departed without sending fails with HDT_ERR_RANK_LOST, and so does a send that waits for one. */
HDT_API hdtResult_t hdtSend(const void* sendbuf, size_t count, hdtDataType_t type, int peer, hdtComm_t comm,
                            hdtRequest_t* request);
HDT_API hdtResult_t hdtRecv(void* recvbuf, size_t count, hdtDataType_t type, int peer, hdtComm_t comm,
                            hdtRequest_t* request);

/* Receives the next message of whichever rank's message is there first; ranks whose messages are there are
 * taken in turn. *source becomes the sender's rank when the operation completes, and is not written if it
 * fails; like recvbuf it must stay valid until then, also between hdtGroupStart and hdtGroupEnd. NULL: nobody
 * wants to know. Messages of one rank are received in the order in which they were sent, by the receives that
 * were submitted first, from that rank or from any. So a receive that is submitted while one from any rank
 * waits gets no message before that one has its own. The messages of hdtGather to hdtAllToAllV are no
 * exception: do not call them while such a receive may take a message that is meant for them. Sizes and
 * errors are those of hdtRecv. Where all other ranks have departed, it fails with HDT_ERR_RANK_LOST. */
HDT_API hdtResult_t hdtRecvAny(void* recvbuf, size_t count, hdtDataType_t type, int* source, hdtComm_t comm,
                               hdtRequest_t* request);

/* A send to `dest` and a receive from `source` at once: neither waits for the other. */
HDT_API hdtResult_t hdtSendRecv(const void* sendbuf, size_t sendcount, int dest, void* recvbuf,
                                size_t recvcount, int source, hdtDataType_t type, hdtComm_t comm,
                                hdtRequest_t* request);

/* Calls of this thread between start and end are under way together, so that sends and receives in them
 * cannot wait for one another. Inside, operations with request NULL return at once, and hdtGroupEnd waits
 * for them; requests given are completed by hdtWait as usual. Groups nest; the outermost end counts.
 * hdtGroupEnd returns the first failure of the operations that it waits for, or HDT_ERR_INVALID_USAGE if
 * no group was started in this thread. (These groups have nothing to do with groups of ranks.) */
HDT_API hdtResult_t hdtGroupStart(void);
HDT_API hdtResult_t hdtGroupEnd(void);

/* --- requests ----------------------------------------------------------------------------------------- */

/* Looks whether the operation is complete, without waiting. HDT_SUCCESS: it is, and its buffers are the
 * caller's again. HDT_IN_PROGRESS: not yet. Any other result says how it failed. The request is freed and set
 * to NULL unless it is in progress. A NULL request or *request succeeds. A copy of a request that was freed:
 * HDT_ERR_INVALID_ARGUMENT, here and in hdtWait. */
HDT_API hdtResult_t hdtTest(hdtRequest_t* request);

/* Waits until complete, at most timeout_ms (< 0: until the communicator's deadline). HDT_ERR_TIMEOUT after
 * timeout_ms leaves the request pending and the communicator working, and *request as it is. Every other
 * result frees the request and sets it to NULL, and so does HDT_ERR_TIMEOUT of a communicator that has failed
 * at its own deadline: *request tells the two apart. A NULL request or *request succeeds. */
HDT_API hdtResult_t hdtWait(hdtRequest_t* request, int64_t timeout_ms);

/* Has call(argument) made once, when the operation is complete or has failed. A program that has many
 * requests under way can thus sleep until any of them ends. The thread that ends the operation makes it,
 * whichever that is, inside the library. So it must be short, must not block, call anything of HDT or
 * throw: it sets a flag and wakes a thread. If the operation has ended, and for a NULL request, it is made
 * before hdtWhenDone returns. The request still needs hdtWait or hdtTest. If another thread completes it
 * by them just then, the call may come a moment later. HDT_ERR_INVALID_ARGUMENT: call is NULL, or the
 * request was completed. Unless the result is HDT_SUCCESS, the call is never made. */
HDT_API hdtResult_t hdtWhenDone(hdtRequest_t request, void (*call)(void* argument), void* argument);

#ifdef __cplusplus
}
#endif

#endif /* HDT_HDT_H */
