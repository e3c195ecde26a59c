// The loop of Plumbline's collectives over an MPI library, for tests/bench/collectives: barrier, then the timed operation.
// Arguments: seconds per operation, then OPERATION:BYTES each. Rank 0 prints OPERATION BYTES MICROSECONDS, where the time is
// the mean of the slowest rank.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run(const char *operation, int bytes, char *give, char *get) {
    int numbers = bytes / (int)sizeof(double);
    if (!strcmp(operation, "barrier")) MPI_Barrier(MPI_COMM_WORLD);
    else if (!strcmp(operation, "bcast")) MPI_Bcast(get, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    else if (!strcmp(operation, "reduce")) MPI_Reduce(give, get, numbers, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    else if (!strcmp(operation, "allreduce")) MPI_Allreduce(give, get, numbers, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    else if (!strcmp(operation, "gather")) MPI_Gather(give, bytes, MPI_BYTE, get, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    else if (!strcmp(operation, "scatter")) MPI_Scatter(give, bytes, MPI_BYTE, get, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    else if (!strcmp(operation, "allgather")) MPI_Allgather(give, bytes, MPI_BYTE, get, bytes, MPI_BYTE, MPI_COMM_WORLD);
    else if (!strcmp(operation, "alltoall")) MPI_Alltoall(give, bytes, MPI_BYTE, get, bytes, MPI_BYTE, MPI_COMM_WORLD);
    else if (!strcmp(operation, "reduce_scatter"))
        MPI_Reduce_scatter_block(give, get, numbers, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    else MPI_Abort(MPI_COMM_WORLD, 2);
}

// Mean time of the operation at this rank after a tenth of a second of warm-up, seconds.
static double measured(const char *operation, int bytes, double seconds, char *give, char *get) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double begin = MPI_Wtime(), sum = 0;
    long count = 0, block = 1;
    for (int warm = 1;;) {
        // Rank 0's word: operations of the next block (0: over), and whether the measurement begins with it.
        long word[2] = {block, 0};
        if (rank == 0) {
            double spent = MPI_Wtime() - begin;
            word[1] = warm && spent > 0.1;
            if (!warm && spent > seconds) word[0] = 0;
        }
        double block_begin = MPI_Wtime();
        MPI_Bcast(word, 2, MPI_LONG, 0, MPI_COMM_WORLD);
        if (word[0] == 0) return sum / (double)count;
        if (word[1]) {
            warm = 0;
            begin = MPI_Wtime();
            sum = 0;
            count = 0;
        }
        for (long i = 0; i < word[0]; i++) {
            if (strcmp(operation, "barrier")) MPI_Barrier(MPI_COMM_WORLD);
            double entry = MPI_Wtime();
            run(operation, bytes, give, get);
            sum += MPI_Wtime() - entry;
            count++;
        }
        // Blocks of about 20 ms.
        double fits = (double)word[0] * 0.02 / (MPI_Wtime() - block_begin + 1e-9);
        block = block * 2 < fits ? block * 2 : fits < 1 ? 1 : (long)fits;
    }
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 2; i < count; i++) {
        char operation[32];
        int bytes;
        if (sscanf(words[i], "%31[^:]:%d", operation, &bytes) != 2) MPI_Abort(MPI_COMM_WORLD, 2);
        size_t all = (size_t)bytes * (size_t)ranks + 1;
        char *give = malloc(all), *get = malloc(all);
        if (!give || !get) MPI_Abort(MPI_COMM_WORLD, 1);
        memset(give, 0, all);
        memset(get, 0, all);
        double mean = measured(operation, bytes, atof(words[1]), give, get), slowest;
        MPI_Reduce(&mean, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("%s %d %.2f\n", operation, bytes, slowest * 1e6);
            fflush(stdout);
        }
        free(give);
        free(get);
    }
    return MPI_Finalize();
}
