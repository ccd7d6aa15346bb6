// A busy machine is no failure: what must appear may take its time.
import { configure } from "@testing-library/svelte";

configure({ asyncUtilTimeout: 30_000 });
