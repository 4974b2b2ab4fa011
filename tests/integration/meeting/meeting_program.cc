// meeting_program.cc: one rank of a job, for tests of how ranks meet.
//   meeting_program job MARK                hdtCommInit, by the variables of the environment
//   meeting_program held MARK FILE          as job; rank 0 writes FILE when the ranks have met, and they work
//                                           until it is gone
//   meeting_program id FILE RANK RANKS MARK rank 0 writes an id to FILE, the others wait for it
//   meeting_program groups COUNT ENDING     COUNT groups one after the other, then ENDING: destroy, abort or
//                                           crash
// Every rank contributes MARK and checks that the sum is MARK times the ranks: another job's data would show.
// The last line of output is "RESULT CODE WRONG RANK RANKS", where CODE is the first hdtResult_t that is not
// HDT_SUCCESS.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "hdt/hdt.h"

namespace {

constexpr int kWaitForIdMs = 30'000;

int report(hdtResult_t result, int wrong, hdtComm_t comm) {
  int rank = -1;
  int ranks = 0;
  if (comm != nullptr) {
    hdtCommUserRank(comm, &rank);
    hdtCommCount(comm, &ranks);
  }
  if (result != HDT_SUCCESS) std::printf("%s\n", hdtGetLastError());
  std::printf("RESULT %d %d %d %d\n", static_cast<int>(result), wrong, rank, ranks);
  std::fflush(stdout);
  return result == HDT_SUCCESS && wrong == 0 ? 0 : 1;
}

// One sum; counts one that is not this job's.
hdtResult_t add_up(hdtComm_t comm, int mark, int* wrong) {
  int ranks = 0;
  int sum = 0;
  hdtCommCount(comm, &ranks);
  const hdtResult_t result = hdtAllReduce(&mark, &sum, 1, HDT_INT32, HDT_SUM, comm, nullptr);
  if (result == HDT_SUCCESS && sum != ranks * mark) ++*wrong;
  return result;
}

// Sums until the file that rank 0 writes is gone.
hdtResult_t add_up_while(hdtComm_t comm, int mark, const char* file, int* wrong) {
  hdtResult_t result = add_up(comm, mark, wrong);  // all ranks have met
  if (result != HDT_SUCCESS) return result;
  int rank = -1;
  hdtCommUserRank(comm, &rank);
  if (rank == 0) {
    FILE* out = std::fopen(file, "w");
    if (out == nullptr) std::abort();
    std::fclose(out);
  }
  for (int go = 1; go != 0;) {
    result = add_up(comm, mark, wrong);
    if (result != HDT_SUCCESS) return result;
    const int mine = rank == 0 && ::access(file, F_OK) == 0 ? 1 : 0;
    result = hdtAllReduce(&mine, &go, 1, HDT_INT32, HDT_MAX, comm, nullptr);
    if (result != HDT_SUCCESS) return result;
    if (go != 0) ::usleep(5'000);
  }
  return HDT_SUCCESS;
}

hdtResult_t init_by_id(hdtComm_t* comm, const char* file, int rank, int ranks) {
  hdtUniqueId_t id;
  const std::string part = std::string(file) + ".part";
  if (rank == 0) {
    const hdtResult_t made = hdtGetUniqueId(&id);
    if (made != HDT_SUCCESS) return made;
    FILE* out = std::fopen(part.c_str(), "wb");
    if (out == nullptr || std::fwrite(&id, sizeof id, 1, out) != 1) std::abort();
    std::fclose(out);
    if (std::rename(part.c_str(), file) != 0) std::abort();
  } else {
    FILE* in = nullptr;
    for (int waited = 0; in == nullptr && waited < kWaitForIdMs; waited += 10) {
      in = std::fopen(file, "rb");
      if (in == nullptr) ::usleep(10'000);
    }
    if (in == nullptr || std::fread(&id, sizeof id, 1, in) != 1) std::abort();
    std::fclose(in);
  }
  return hdtCommInitRank(comm, ranks, id, rank, nullptr);
}

int groups(int count, const std::string& ending) {
  hdtComm_t world = nullptr;
  int wrong = 0;
  hdtResult_t result = hdtCommInit(&world, nullptr);
  if (result == HDT_SUCCESS) result = add_up(world, 3, &wrong);
  for (int i = 0; i < count && result == HDT_SUCCESS; ++i) {
    hdtComm_t comm = nullptr;
    result = hdtCommSplit(world, 0, 0, &comm, nullptr);
    if (result != HDT_SUCCESS) break;
    result = add_up(comm, i + 1, &wrong);
    // The other rank may abort the group as soon as it has its own result.
    if (i % 2 == 1 && result == HDT_ERR_ABORTED) result = HDT_SUCCESS;
    if (i % 2 == 1) hdtCommAbort(comm);
    hdtCommDestroy(comm);
  }
  const int code = report(result, wrong, world);
  if (ending == "crash") ::_exit(code);
  if (ending == "abort") hdtCommAbort(world);
  hdtCommDestroy(world);
  return code;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  hdtComm_t comm = nullptr;
  hdtResult_t result = HDT_SUCCESS;
  int wrong = 0;
  if (what == "groups" && count == 4) return groups(std::atoi(words[2]), words[3]);
  if (what == "job" && count == 3) {
    result = hdtCommInit(&comm, nullptr);
    if (result == HDT_SUCCESS) result = add_up(comm, std::atoi(words[2]), &wrong);
  } else if (what == "held" && count == 4) {
    result = hdtCommInit(&comm, nullptr);
    if (result == HDT_SUCCESS) result = add_up_while(comm, std::atoi(words[2]), words[3], &wrong);
  } else if (what == "id" && count == 6) {
    result = init_by_id(&comm, words[2], std::atoi(words[3]), std::atoi(words[4]));
    if (result == HDT_SUCCESS) result = add_up(comm, std::atoi(words[5]), &wrong);
  } else {
    std::fprintf(stderr,
                 "usage: meeting_program job MARK | held MARK FILE | id FILE RANK RANKS MARK | groups COUNT "
                 "ENDING\n");
    return 2;
  }
  const int code = report(result, wrong, comm);
  hdtCommDestroy(comm);
  return code;
}
