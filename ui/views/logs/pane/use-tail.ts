import { useEffect, useMemo } from 'preact/hooks'
import { TailController, type TailOptions } from './tail-controller.ts'

/** A tail that runs while the component is mounted; another one when `key` changes. */
export function useTail(key: string, options: () => TailOptions): TailController {
  const tail = useMemo(() => new TailController(options()), [key])
  useEffect(() => {
    tail.start()
    return () => tail.close()
  }, [tail])
  return tail
}
