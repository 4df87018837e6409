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

The compiler flags that write both files (a fresh process for each setting):
``--xla_jf_dump_to=DIR --xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=final_``
and, for the static profile, ``--xla_jf_dump_static_llo_profile_to=DIR``.
"""
