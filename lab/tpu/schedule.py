"""Execute the scalar half of libtpu's final VLIW schedule: cycles, DMA stalls, loop trip counts.

    from lab.tpu import bundles, schedule, utilization
    path = bundles.find_dump(directory, "flash_attention.1")      # None: the compiler wrote none
    program = bundles.read(path)                                  # .txt or .txt.gz; UnrecognisedDump
    machine = schedule.Machine(clock_ghz=1.5, hbm_gb_s=819)       # from the chip table
    result = schedule.execute(program, machine)                   # ScheduleEstimate | NoEstimate
    if isinstance(result, schedule.NoEstimate): result.reason     # one line
    else: result.cycles, result.ms, result.dma_bytes, result.stall_cycles, result.bundles_executed
    slots = utilization.find_slots(directory, "flash_attention.1")  # path of the slot-use file or None
    utilization.loop_utilization(program, result, utilization.read_slots(slots))  # -> list[LoopUse]

The compiler flags that write every file read here (a fresh process for each setting), as one string
``bundles.DUMP_FLAGS.format(directory=DIR)``; the pass regex is
``final_|packed-bundles-post-ra|pre-delay_hlo``. Why not the final bundles alone: the last pass drops
the empty bundles in which the core waits for the latency of its units (an 8-row softmax step has
317 bundles before it and 77 after), so time must be counted on the schedule before it.
"""
