/** The store in memory, which other tests make fail on demand, has the contract of the real one. */
import { MemoryStore } from '../helpers/memory-store.ts'
import { storeContract } from './contract.ts'

storeContract('memory', () => Promise.resolve(new MemoryStore()))
