#include "hccl.h"

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
#define X(name) {#name, name},
        HCCL_SCENARIOS(X)
#undef X
    };
    return check_main(argc, argv, scenarios, sizeof scenarios / sizeof *scenarios);
}
