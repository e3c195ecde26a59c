// The bare loops that tests/bench/mpi compares with: blocking ping-pong and stream between ranks 0 and 1 for about so many seconds
// each. Arguments: bytes of a message, seconds. Prints round trips and messages per second.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static char *out, *in;

static double round_trips(long count) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long i = 0; i < count; i++) {
        if (rank == 0) {
            MPI_Send(out, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(in, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
    }
    return MPI_Wtime() - start;
}

static double stream(long count) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long i = 0; i < count; i++) {
        if (rank == 0)
            MPI_Send(out, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        else
            MPI_Recv(in, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

// Events per second, measured over about `seconds` after a first part that tells how many that are.
static double rate(double (*loop)(long), double seconds) {
    long count = 200;
    double took = loop(count);
    MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (took < seconds / 20) {
        count = count * (seconds / 20) / took + 1;
        MPI_Bcast(&count, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        took = loop(count);
    }
    count = count * seconds / took + 1;
    MPI_Bcast(&count, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return count / loop(count);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    size = atoi(argv[1]);
    double seconds = atof(argv[2]);
    out = malloc(size + 1);
    in = malloc(size + 1);
    memset(out, 5, size + 1);
    memset(in, 0, size + 1);
    double trips = rate(round_trips, seconds), messages = rate(stream, seconds);
    if (rank == 0)
        printf("%f %f\n", trips, messages);
    MPI_Finalize();
}
