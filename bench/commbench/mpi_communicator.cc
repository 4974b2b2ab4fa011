// mpi_communicator.cc: makes calls of MPI out of calls of the benchmark. The types and reductions that
// MPI's standard lacks are left out; data that is only moved goes as bytes.
#include "bench/commbench/mpi_communicator.h"

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

namespace hdt::bench {
namespace {

Status check(int result, const char* what) {
  if (result == MPI_SUCCESS) return Status::ok();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  return {Code::kInternal, std::string(what) + ": " + text};
}

// MPI_DATATYPE_NULL if MPI has no such type.
MPI_Datatype type_of(hdtDataType_t type) {
  switch (type) {
    case HDT_INT32:
      return MPI_INT32_T;
    case HDT_INT64:
      return MPI_INT64_T;
    case HDT_FLOAT32:
      return MPI_FLOAT;
    case HDT_FLOAT64:
      return MPI_DOUBLE;
    default:
      return MPI_DATATYPE_NULL;
  }
}

// MPI_OP_NULL if MPI has no such reduction.
MPI_Op op_of(hdtRedOp_t op) {
  switch (op) {
    case HDT_SUM:
      return MPI_SUM;
    case HDT_PROD:
      return MPI_PROD;
    case HDT_MIN:
      return MPI_MIN;
    case HDT_MAX:
      return MPI_MAX;
    case HDT_BAND:
      return MPI_BAND;
    case HDT_BOR:
      return MPI_BOR;
    case HDT_BXOR:
      return MPI_BXOR;
    default:
      return MPI_OP_NULL;
  }
}

// Ends MPI with itself, so there can be one only.
class MpiCommunicator : public PeerCommunicator {
 public:
  MpiCommunicator(Communicator& group, MPI_Comm comm) : PeerCommunicator(group), comm_(comm) {}
  ~MpiCommunicator() override {
    MPI_Comm_free(&comm_);
    MPI_Finalize();
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  std::string lacks(const Call& call) const override {
    if (reduces(call.what) && type_of(call.type) == MPI_DATATYPE_NULL) {
      return std::string("no reductions of ") + name_of(call.type);
    }
    if (reduces(call.what) && op_of(call.op) == MPI_OP_NULL) return std::string("no ") + name_of(call.op);
    // Counts are ints.
    if (call.count * (reduces(call.what) ? 1 : element_bytes(call.type)) > INT_MAX) {
      return "no counts above 2^31 - 1";
    }
    return "";
  }
  bool scatters_to_start() const override { return true; }

  Status barrier() override { return check(MPI_Barrier(comm_), "MPI_Barrier"); }

  Status run(const Call& call) override {
    // MPI says by a constant that a call is in place.
    const bool same = in_place(call);
    const void* send = same ? MPI_IN_PLACE : call.send;
    // Data that is only moved goes as bytes, whatever its type is.
    const MPI_Datatype type = reduces(call.what) ? type_of(call.type) : MPI_BYTE;
    const int count = static_cast<int>(call.count * (reduces(call.what) ? 1 : element_bytes(call.type)));
    switch (call.what) {
      case Collective::kAllReduce:
        return check(MPI_Allreduce(send, call.recv, count, type, op_of(call.op), comm_), "MPI_Allreduce");
      case Collective::kReduceScatter:
        // In place, MPI leaves the result at the start of the buffer, wherever this rank's part is.
        return check(MPI_Reduce_scatter_block(send, same ? const_cast<void*>(call.send) : call.recv, count,
                                              type, op_of(call.op), comm_),
                     "MPI_Reduce_scatter_block");
      case Collective::kAllGather: {
        // In place, MPI wants the start of the whole buffer, and the call has that of the own part.
        const size_t part = static_cast<size_t>(rank()) * static_cast<size_t>(count);
        void* whole =
            same ? const_cast<std::byte*>(static_cast<const std::byte*>(call.send)) - part : call.recv;
        return check(MPI_Allgather(send, count, type, whole, count, type, comm_), "MPI_Allgather");
      }
      case Collective::kBroadcast:
        return broadcast(call, count, type);
      case Collective::kReduce:
        // MPI_IN_PLACE is for the root alone.
        if (rank() != call.root) send = call.send;
        return check(MPI_Reduce(send, call.recv, count, type, op_of(call.op), call.root, comm_),
                     "MPI_Reduce");
      case Collective::kAllToAll:
        return check(MPI_Alltoall(call.send, count, type, call.recv, count, type, comm_), "MPI_Alltoall");
      case Collective::kGather:
        return check(MPI_Gather(call.send, count, type, call.recv, count, type, call.root, comm_),
                     "MPI_Gather");
      case Collective::kScatter:
        return check(MPI_Scatter(call.send, count, type, call.recv, count, type, call.root, comm_),
                     "MPI_Scatter");
      case Collective::kSendRecv:
        return check(MPI_Sendrecv(call.send, count, type, (rank() + 1) % ranks(), 0, call.recv, count, type,
                                  (rank() + ranks() - 1) % ranks(), 0, comm_, MPI_STATUS_IGNORE),
                     "MPI_Sendrecv");
      case Collective::kBarrier:
        return barrier();
    }
    return {Code::kInternal, "a collective without a call"};
  }

 private:
  // MPI's broadcast has one buffer. The root sends from its send buffer, and then copies its own data.
  Status broadcast(const Call& call, int count, MPI_Datatype type) {
    if (rank() != call.root) return check(MPI_Bcast(call.recv, count, type, call.root, comm_), "MPI_Bcast");
    HDT_RETURN_IF_ERROR(
        check(MPI_Bcast(const_cast<void*>(call.send), count, type, call.root, comm_), "MPI_Bcast"));
    if (call.send != call.recv)
      std::copy_n(static_cast<const std::byte*>(call.send), count, static_cast<std::byte*>(call.recv));
    return Status::ok();
  }

  MPI_Comm comm_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_mpi_communicator(Communicator& group) {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) {
    return Status(
        Code::kInvalidArgument,
        "--engine: mpi needs ranks that were started by mpirun (mpirun -np N hdt-commbench ...), or --local "
        "or --nodes, which call it");
  }
  // Threads other than this one make no calls of MPI.
  if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS) return Status(Code::kSystem, "MPI_Init failed");
  MPI_Comm comm = MPI_COMM_NULL;
  // The key orders the ranks as the group does.
  HDT_RETURN_IF_ERROR(check(MPI_Comm_split(MPI_COMM_WORLD, 0, group.rank(), &comm), "MPI_Comm_split"));
  int rank = -1;
  int ranks = -1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  // Otherwise the verifier would compare with another rank's data.
  if (rank != group.rank() || ranks != group.ranks()) {
    return Status(Code::kInternal, "MPI's rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                                       " is not the group's, " + std::to_string(group.rank()) + " of " +
                                       std::to_string(group.ranks()));
  }
  // Errors are returned, instead of ending the process.
  HDT_RETURN_IF_ERROR(check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  return std::unique_ptr<Communicator>(new MpiCommunicator(group, comm));
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<size_t>(length));
  // Set by mpirun's --mca btl (mpi_launch.cc) or by the user.
  const char* transports = std::getenv("OMPI_MCA_btl");
  return whole.substr(0, whole.find(',')) + ", btl " + (transports != nullptr ? transports : "by default");
}

}  // namespace hdt::bench
